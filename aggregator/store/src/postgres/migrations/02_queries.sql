-- Version 2: the curator's budgets, in billionths, and sessions. Spent budget is never given back.
CREATE TABLE curator_data_set (
    name        text PRIMARY KEY,
    file        text NOT NULL,
    fingerprint bytea NOT NULL CHECK (octet_length(fingerprint) = 32),
    rows        bigint NOT NULL CHECK (rows > 0),
    columns     text NOT NULL,
    measure     text NOT NULL CHECK (measure IN ('pure', 'concentrated')),
    budget      bigint NOT NULL CHECK (budget > 0),
    spent       bigint NOT NULL CHECK (spent BETWEEN 0 AND budget),
    at          bigint NOT NULL
);
CREATE TABLE curator_debit (
    number   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    data_set text NOT NULL REFERENCES curator_data_set (name),
    at       bigint NOT NULL,
    caller   text NOT NULL,
    purpose  text NOT NULL,
    price    bigint NOT NULL CHECK (price > 0)
);
CREATE INDEX curator_debit_by_data_set ON curator_debit (data_set, number);
CREATE TABLE curator_session (
    name            text PRIMARY KEY,
    data_set        text NOT NULL REFERENCES curator_data_set (name),
    columns         text NOT NULL,
    plan            text NOT NULL,
    threshold_noise bigint NOT NULL
);
CREATE TABLE curator_update (
    session   text NOT NULL REFERENCES curator_session (name),
    number    bigint NOT NULL CHECK (number >= 0),
    predicate text NOT NULL,
    answer    bigint NOT NULL,
    PRIMARY KEY (session, number)
);
CREATE FUNCTION curator_spends_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND NEW.spent >= OLD.spent AND NEW.budget = OLD.budget
        AND NEW.fingerprint = OLD.fingerprint THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'what was spent is never given back';
END $$;
CREATE TRIGGER curator_spends_only BEFORE UPDATE OR DELETE ON curator_data_set
    FOR EACH ROW EXECUTE FUNCTION curator_spends_only();
CREATE TRIGGER curator_debit_is_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON curator_debit
    FOR EACH STATEMENT EXECUTE FUNCTION audit_is_append_only();
