-- Version 8: budgets belong to the content of a file, independent of its name. `content` and
-- `fingerprint` are codes by the key of the store. In earlier data sets, `content` is missing and
-- `fingerprint` is a plain hash until their files have been read again. Sessions count their
-- rounds, and answers are kept for callers who did not receive them.
CREATE TABLE curator_key (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    key BLOB NOT NULL CHECK (length(key) = 32)
) STRICT;
ALTER TABLE curator_data_set ADD COLUMN content BLOB CHECK (length(content) = 32);
CREATE UNIQUE INDEX curator_data_set_by_content ON curator_data_set (content);
DROP TRIGGER curator_spends_only;
CREATE TRIGGER curator_spends_only BEFORE UPDATE ON curator_data_set
WHEN NEW.spent < OLD.spent OR NEW.budget <> OLD.budget OR (OLD.content IS NOT NULL
    AND (NEW.content IS NOT OLD.content OR NEW.fingerprint <> OLD.fingerprint))
BEGIN SELECT raise(ABORT, 'what was spent is never given back'); END;
ALTER TABLE curator_session ADD COLUMN rounds INTEGER NOT NULL DEFAULT 0 CHECK (rounds >= 0);
CREATE TABLE curator_answer (
    number   INTEGER PRIMARY KEY AUTOINCREMENT,
    kind     TEXT NOT NULL CHECK (kind IN ('data-set', 'session')),
    name     TEXT NOT NULL,
    caller   TEXT NOT NULL,
    question BLOB NOT NULL CHECK (length(question) = 16),
    digest   BLOB NOT NULL CHECK (length(digest) = 32),
    answer   BLOB NOT NULL,
    at       INTEGER NOT NULL,
    UNIQUE (kind, name, caller, question)
) STRICT;
