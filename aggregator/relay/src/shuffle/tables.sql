-- The id of the store, the oldest day whose uploads are taken, and the number of commits so far.
CREATE TABLE store (
    id BLOB NOT NULL CHECK (length(id) = 16),
    oldest_day INTEGER NOT NULL,
    commits INTEGER NOT NULL
) STRICT;
INSERT INTO store (id, oldest_day, commits) VALUES (randomblob(16), 0, 0);

-- The ids of counted uploads.
CREATE TABLE seen (
    day INTEGER NOT NULL,
    id BLOB NOT NULL CHECK (length(id) = 16),
    PRIMARY KEY (day, id)
) STRICT, WITHOUT ROWID;

-- The reports that wait for each other.
CREATE TABLE pile (
    key INTEGER PRIMARY KEY,
    digest BLOB NOT NULL CHECK (length(digest) = 16),
    arm INTEGER NOT NULL,
    batch INTEGER NOT NULL,
    keys BLOB NOT NULL CHECK (length(keys) = 16),
    UNIQUE (digest, arm, batch, keys)
) STRICT;

-- Sealed reports.
CREATE TABLE report (
    key INTEGER PRIMARY KEY,
    pile INTEGER NOT NULL REFERENCES pile (key),
    sealed BLOB NOT NULL,
    -- A code of the address; none of reports that an earlier version kept.
    origin BLOB
) STRICT;
CREATE INDEX report_by_origin ON report (pile, origin);

-- Full batches, shuffled, until the aggregator has them.
CREATE TABLE batch (
    key INTEGER PRIMARY KEY AUTOINCREMENT,
    id BLOB NOT NULL CHECK (length(id) = 16),
    digest BLOB NOT NULL CHECK (length(digest) = 16),
    day INTEGER NOT NULL,
    arm INTEGER NOT NULL,
    reports BLOB NOT NULL,
    -- The keys that the reports are sealed for; none of batches that an earlier version filled.
    keys BLOB
) STRICT;
