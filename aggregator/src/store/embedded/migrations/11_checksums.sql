-- Version 11: every row has a checksum, and every table a sum of them. The columns are added by
-- the program, to the tables of this version and of later ones; and rows that are not changed
-- get their checksums after they were written.
CREATE TABLE table_sum (
    name TEXT PRIMARY KEY,
    rows INTEGER NOT NULL,
    sum  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
DROP TRIGGER audit_is_not_changed;
CREATE TRIGGER audit_is_not_changed
BEFORE UPDATE OF key, at, caller, action, experiment, detail ON audit
BEGIN SELECT raise(ABORT, 'entries of the audit log are not changed'); END;
DROP TRIGGER store_keeps_its_id;
CREATE TRIGGER store_keeps_its_id BEFORE UPDATE OF one, id ON store
BEGIN SELECT raise(ABORT, 'a store keeps its id'); END;
