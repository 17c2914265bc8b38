-- Version 6: budgets belong to the content of a file, independent of its name. `content` and
-- `fingerprint` are codes by the key of the store. In earlier data sets, `content` is missing and
-- `fingerprint` is a plain hash until their files have been read again. Sessions count their
-- rounds, and answers are kept for callers who did not receive them.
CREATE TABLE curator_key (
    one integer PRIMARY KEY CHECK (one = 1),
    key bytea NOT NULL CHECK (octet_length(key) = 32)
);
ALTER TABLE curator_data_set ADD COLUMN content bytea UNIQUE CHECK (octet_length(content) = 32);
CREATE OR REPLACE FUNCTION curator_spends_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND NEW.spent >= OLD.spent AND NEW.budget = OLD.budget
        AND (OLD.content IS NULL
            OR (NEW.content = OLD.content AND NEW.fingerprint = OLD.fingerprint)) THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'what was spent is never given back';
END $$;
ALTER TABLE curator_session ADD COLUMN rounds bigint NOT NULL DEFAULT 0 CHECK (rounds >= 0);
CREATE TABLE curator_answer (
    number   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind     text NOT NULL CHECK (kind IN ('data-set', 'session')),
    name     text NOT NULL,
    caller   text NOT NULL,
    question bytea NOT NULL CHECK (octet_length(question) = 16),
    digest   bytea NOT NULL CHECK (octet_length(digest) = 32),
    answer   bytea NOT NULL,
    at       bigint NOT NULL,
    UNIQUE (kind, name, caller, question)
);
