-- Version 9: who commits the disclosures to a trusted experiment, and what others hand over to
-- it. Each replica has a few rows of its own for each experiment, which it uses again and again:
-- no indexed column changes, so the space of old versions is used again at once. `handed` and
-- `told` have checksums of their own. Neither table is in the database's log.
CREATE UNLOGGED TABLE trusted_lease (
    experiment text PRIMARY KEY,
    holder     bigint NOT NULL,
    expires    timestamptz NOT NULL
) WITH (fillfactor = 50);
CREATE UNLOGGED TABLE trusted_handover (
    experiment text NOT NULL,
    replica    bigint NOT NULL,
    place       integer NOT NULL,
    number     bigint NOT NULL,
    at         timestamptz NOT NULL,
    handed     bytea NOT NULL,
    told       bytea,
    PRIMARY KEY (experiment, replica, place)
) WITH (fillfactor = 50);
