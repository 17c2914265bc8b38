-- Version 4: trusted experiments. `private` has sums of unreleased rewards, and is erased when the
-- experiment is stopped; `released` may be shown. A disclosure counts once by its id and day; the
-- day is not before `oldest_day`. It has no foreign key to its experiment, whose row is written in
-- every commit.
CREATE TABLE trusted_experiment (
    key           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id            text NOT NULL UNIQUE,
    specification bytea NOT NULL,
    state         text NOT NULL CHECK (state IN ('running', 'paused', 'stopped')),
    sequence      bigint NOT NULL CHECK (sequence >= 0),
    stamp         bigint NOT NULL CHECK (stamp >= 0),
    oldest_day    integer NOT NULL CHECK (oldest_day >= 0),
    private       bytea,
    released      bytea NOT NULL,
    CHECK ((private IS NULL) = (state = 'stopped'))
) WITH (fillfactor = 50);
CREATE TABLE trusted_disclosure (
    experiment bigint NOT NULL,
    day        integer NOT NULL,
    id         uuid NOT NULL,
    PRIMARY KEY (experiment, day, id)
);
