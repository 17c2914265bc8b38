-- Version 5: symbols beyond 0 and 1, and learners with limited memory. `tally` has all reports and
-- those that say 1, as before. `symbol_tally` has the reports that say 2 and more; the others say
-- 0. `checkpoint` and `symbol_checkpoint` are split in the same way.
CREATE TABLE symbol_tally (
    experiment INTEGER NOT NULL REFERENCES experiment (key),
    day        INTEGER NOT NULL,
    arm        INTEGER NOT NULL,
    symbol     INTEGER NOT NULL CHECK (symbol BETWEEN 2 AND 15),
    reports    INTEGER NOT NULL CHECK (reports > 0),
    PRIMARY KEY (experiment, day, arm, symbol)
) STRICT, WITHOUT ROWID;
CREATE TABLE symbol_checkpoint (
    experiment INTEGER NOT NULL REFERENCES experiment (key),
    day        INTEGER NOT NULL,
    arm        INTEGER NOT NULL,
    symbol     INTEGER NOT NULL,
    reports    INTEGER NOT NULL,
    PRIMARY KEY (experiment, day, arm, symbol)
) STRICT, WITHOUT ROWID;
ALTER TABLE experiment ADD COLUMN window_days INTEGER CHECK (window_days > 0);
ALTER TABLE experiment ADD COLUMN discount REAL CHECK (discount > 0 AND discount < 1);
