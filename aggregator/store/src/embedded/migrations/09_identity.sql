-- Version 9: the id of the store. It is made here, with a new store or with the upgrade of an old
-- one, and stays.
CREATE TABLE store (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    id  BLOB NOT NULL CHECK (length(id) = 16)
) STRICT;
INSERT INTO store (one, id) VALUES (1, randomblob(16));
CREATE TRIGGER store_keeps_its_id BEFORE UPDATE ON store
BEGIN SELECT raise(ABORT, 'a store keeps its id'); END;
CREATE TRIGGER store_does_not_lose_its_id BEFORE DELETE ON store
BEGIN SELECT raise(ABORT, 'a store keeps its id'); END;
