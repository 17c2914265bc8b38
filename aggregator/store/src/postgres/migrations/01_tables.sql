-- Version 1.
--
-- `experiment.version` is the version of the policy, and grows with every change that replicas
-- must follow. `tally` has a row for each replica that counts at the same time, so that none waits
-- for another; rows of expired days are summed up as replica 0. It has no foreign key to the
-- experiment, which would lock the experiment's row in every commit. `upload` has a partition for
-- each day, so that a whole day is dropped at once.
CREATE TABLE bandana_schema (
    one     integer PRIMARY KEY CHECK (one = 1),
    version bigint NOT NULL
);
INSERT INTO bandana_schema VALUES (1, 1);
CREATE TABLE experiment (
    key            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id             text NOT NULL UNIQUE,
    state          text NOT NULL CHECK (state IN ('draft', 'running', 'paused', 'stopped')),
    learner        text NOT NULL,
    floor_weight   double precision NOT NULL,
    version        bigint NOT NULL CHECK (version > 0),
    weights        bigint[] NOT NULL,
    policy_reports bigint NOT NULL CHECK (policy_reports >= 0)
) WITH (fillfactor = 50);
CREATE TABLE specification (
    digest     bytea PRIMARY KEY CHECK (octet_length(digest) = 16),
    experiment bigint NOT NULL REFERENCES experiment (key),
    revision   bigint NOT NULL,
    bytes      bytea NOT NULL,
    UNIQUE (experiment, revision)
);
CREATE TABLE signature (
    digest     bytea NOT NULL REFERENCES specification (digest),
    public_key bytea NOT NULL CHECK (octet_length(public_key) = 32),
    expires    bigint NOT NULL CHECK (expires >= 0),
    signature  bytea NOT NULL CHECK (octet_length(signature) = 64),
    PRIMARY KEY (digest, public_key)
);
CREATE TABLE upload (
    day integer NOT NULL,
    id  uuid NOT NULL,
    PRIMARY KEY (day, id)
) PARTITION BY LIST (day);
CREATE TABLE tally (
    day        integer NOT NULL,
    experiment bigint NOT NULL,
    arm        integer NOT NULL,
    replica    integer NOT NULL,
    reports    bigint NOT NULL CHECK (reports >= 0),
    ones       bigint NOT NULL CHECK (ones BETWEEN 0 AND reports),
    PRIMARY KEY (day, experiment, arm, replica)
) WITH (fillfactor = 50);
CREATE TABLE watermark (
    one        integer PRIMARY KEY CHECK (one = 1),
    oldest_day integer NOT NULL
);
INSERT INTO watermark VALUES (1, 0);
CREATE TABLE lease (
    one     integer PRIMARY KEY CHECK (one = 1),
    holder  text NOT NULL,
    expires timestamptz NOT NULL
);
INSERT INTO lease VALUES (1, '', '-infinity');
CREATE TABLE audit (
    key        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at         bigint NOT NULL,
    caller     text NOT NULL,
    action     text NOT NULL,
    experiment text NOT NULL,
    detail     text NOT NULL
);
CREATE INDEX audit_by_experiment ON audit (experiment, key);
CREATE FUNCTION audit_is_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'entries of the audit log are neither changed nor deleted';
END $$;
CREATE TRIGGER audit_is_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON audit
    FOR EACH STATEMENT EXECUTE FUNCTION audit_is_append_only();
