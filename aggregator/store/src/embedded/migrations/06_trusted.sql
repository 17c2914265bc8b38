-- Version 6: trusted experiments. `private` has sums of unreleased rewards, and is erased when the
-- experiment is stopped; `released` may be shown. A disclosure counts once by its id and day; the
-- day is not before `oldest_day`.
CREATE TABLE trusted_experiment (
    key           INTEGER PRIMARY KEY,
    id            TEXT NOT NULL UNIQUE,
    specification BLOB NOT NULL,
    state         TEXT NOT NULL CHECK (state IN ('running', 'paused', 'stopped')),
    sequence      INTEGER NOT NULL CHECK (sequence >= 0),
    stamp         INTEGER NOT NULL CHECK (stamp >= 0),
    oldest_day    INTEGER NOT NULL CHECK (oldest_day >= 0),
    private       BLOB,
    released      BLOB NOT NULL,
    CHECK ((private IS NULL) = (state = 'stopped'))
) STRICT;
CREATE TABLE trusted_disclosure (
    experiment INTEGER NOT NULL REFERENCES trusted_experiment (key),
    day        INTEGER NOT NULL,
    id         BLOB NOT NULL CHECK (length(id) = 16),
    PRIMARY KEY (experiment, day, id)
) STRICT, WITHOUT ROWID;
