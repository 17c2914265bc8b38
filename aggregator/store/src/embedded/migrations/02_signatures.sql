-- Version 2: the signatures of each revision; `expires` in seconds since
-- 1970-01-01 (UTC).
CREATE TABLE signature (
    digest     BLOB NOT NULL REFERENCES specification (digest),
    public_key BLOB NOT NULL CHECK (length(public_key) = 32),
    expires    INTEGER NOT NULL CHECK (expires >= 0),
    signature  BLOB NOT NULL CHECK (length(signature) = 64),
    PRIMARY KEY (digest, public_key)
) STRICT, WITHOUT ROWID;
