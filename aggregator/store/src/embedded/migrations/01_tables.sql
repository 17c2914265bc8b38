-- Version 1. `upload_group` has one row per commit and day, in the order of the commits. `tally`
-- has the sums of all days. For days before `watermark.oldest_day`, rows move from `upload_group`
-- to `checkpoint` a few at a time. So for every experiment, day and arm, at any time: tally =
-- checkpoint + deltas of the groups.
CREATE TABLE experiment (
    key          INTEGER PRIMARY KEY,
    id           TEXT NOT NULL UNIQUE,
    state        TEXT NOT NULL CHECK (state IN ('running', 'paused', 'stopped')),
    learner      TEXT NOT NULL,
    floor_weight REAL NOT NULL
) STRICT;
CREATE TABLE specification (
    digest     BLOB PRIMARY KEY CHECK (length(digest) = 16),
    experiment INTEGER NOT NULL REFERENCES experiment (key),
    revision   INTEGER NOT NULL,
    bytes      BLOB NOT NULL,
    UNIQUE (experiment, revision)
) STRICT, WITHOUT ROWID;
CREATE TABLE tally (
    experiment INTEGER NOT NULL REFERENCES experiment (key),
    day        INTEGER NOT NULL,
    arm        INTEGER NOT NULL,
    reports    INTEGER NOT NULL CHECK (reports >= 0),
    ones       INTEGER NOT NULL CHECK (ones BETWEEN 0 AND reports),
    PRIMARY KEY (experiment, day, arm)
) STRICT, WITHOUT ROWID;
CREATE TABLE upload_group (
    key    INTEGER PRIMARY KEY,
    day    INTEGER NOT NULL,
    ids    BLOB NOT NULL CHECK (length(ids) % 16 = 0),
    deltas BLOB NOT NULL
) STRICT;
CREATE TABLE checkpoint (
    experiment INTEGER NOT NULL REFERENCES experiment (key),
    day        INTEGER NOT NULL,
    arm        INTEGER NOT NULL,
    reports    INTEGER NOT NULL,
    ones       INTEGER NOT NULL,
    PRIMARY KEY (experiment, day, arm)
) STRICT, WITHOUT ROWID;
CREATE TABLE watermark (
    one        INTEGER PRIMARY KEY CHECK (one = 1),
    oldest_day INTEGER NOT NULL
) STRICT;
INSERT INTO watermark VALUES (1, 0);
