-- Version 3: draft experiments, which need a new table, since a check constraint can't be changed;
-- and an append-only audit log.
CREATE TABLE new_experiment (
    key          INTEGER PRIMARY KEY,
    id           TEXT NOT NULL UNIQUE,
    state        TEXT NOT NULL CHECK (state IN ('draft', 'running', 'paused', 'stopped')),
    learner      TEXT NOT NULL,
    floor_weight REAL NOT NULL
) STRICT;
INSERT INTO new_experiment SELECT key, id, state, learner, floor_weight FROM experiment;
DROP TABLE experiment;
ALTER TABLE new_experiment RENAME TO experiment;
CREATE TABLE audit (
    key        INTEGER PRIMARY KEY AUTOINCREMENT,
    at         INTEGER NOT NULL,
    caller     TEXT NOT NULL,
    action     TEXT NOT NULL,
    experiment TEXT NOT NULL,
    detail     TEXT NOT NULL
) STRICT;
CREATE INDEX audit_by_experiment ON audit (experiment, key);
CREATE TRIGGER audit_is_not_changed BEFORE UPDATE ON audit
BEGIN SELECT raise(ABORT, 'entries of the audit log are not changed'); END;
CREATE TRIGGER audit_is_not_deleted BEFORE DELETE ON audit
BEGIN SELECT raise(ABORT, 'entries of the audit log are not deleted'); END;
