-- Version 11: a checksum for every row, and a sum of them for every table. The program adds the
-- columns to the tables of this version and of later ones; unchanged rows get their checksums
-- afterwards.
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
