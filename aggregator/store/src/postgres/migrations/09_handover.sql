-- Version 9: the replica that commits the disclosures to a trusted experiment, and the disclosures
-- that other replicas hand over to it. Each replica reuses a few rows of its own for each
-- experiment. No indexed column changes, so the space of old row versions is reused at once.
-- `handed` and `told` have checksums of their own. Neither table is in the write-ahead log.
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
