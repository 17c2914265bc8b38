-- Version 4: the curator's budgets, in billionths, and sessions. Spent budget is never given back,
-- and debits and updates are append-only.
CREATE TABLE curator_data_set (
    name        TEXT PRIMARY KEY,
    file        TEXT NOT NULL,
    fingerprint BLOB NOT NULL CHECK (length(fingerprint) = 32),
    rows        INTEGER NOT NULL CHECK (rows > 0),
    columns     TEXT NOT NULL,
    measure     TEXT NOT NULL CHECK (measure IN ('pure', 'concentrated')),
    budget      INTEGER NOT NULL CHECK (budget > 0),
    spent       INTEGER NOT NULL CHECK (spent BETWEEN 0 AND budget),
    at          INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE curator_debit (
    number   INTEGER PRIMARY KEY AUTOINCREMENT,
    data_set TEXT NOT NULL REFERENCES curator_data_set (name),
    at       INTEGER NOT NULL,
    caller   TEXT NOT NULL,
    purpose  TEXT NOT NULL,
    price    INTEGER NOT NULL CHECK (price > 0)
) STRICT;
CREATE INDEX curator_debit_by_data_set ON curator_debit (data_set, number);
CREATE TABLE curator_session (
    name            TEXT PRIMARY KEY,
    data_set        TEXT NOT NULL REFERENCES curator_data_set (name),
    columns         TEXT NOT NULL,
    plan            TEXT NOT NULL,
    threshold_noise INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE curator_update (
    session   TEXT NOT NULL REFERENCES curator_session (name),
    number    INTEGER NOT NULL CHECK (number >= 0),
    predicate TEXT NOT NULL,
    answer    INTEGER NOT NULL,
    PRIMARY KEY (session, number)
) STRICT, WITHOUT ROWID;
CREATE TRIGGER curator_spends_only BEFORE UPDATE ON curator_data_set
WHEN NEW.spent < OLD.spent OR NEW.budget <> OLD.budget OR NEW.fingerprint <> OLD.fingerprint
BEGIN SELECT raise(ABORT, 'what was spent is never given back'); END;
CREATE TRIGGER curator_data_set_is_not_deleted BEFORE DELETE ON curator_data_set
BEGIN SELECT raise(ABORT, 'a data set is not deleted: its budget would begin anew'); END;
CREATE TRIGGER curator_debit_is_not_deleted BEFORE DELETE ON curator_debit
BEGIN SELECT raise(ABORT, 'debits are not deleted'); END;
