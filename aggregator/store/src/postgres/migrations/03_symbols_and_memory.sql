-- Version 3: symbols beyond 0 and 1, and learners with limited memory. `tally` has all reports and
-- those that say 1, as before. `symbol_tally` has the reports that say 2 and more; the others say
-- 0.
CREATE TABLE symbol_tally (
    day        integer NOT NULL,
    experiment bigint NOT NULL,
    arm        integer NOT NULL,
    symbol     integer NOT NULL CHECK (symbol BETWEEN 2 AND 15),
    replica    integer NOT NULL,
    reports    bigint NOT NULL CHECK (reports > 0),
    PRIMARY KEY (day, experiment, arm, symbol, replica)
) WITH (fillfactor = 50);
ALTER TABLE experiment
    ADD COLUMN window_days bigint CHECK (window_days > 0),
    ADD COLUMN discount double precision CHECK (discount > 0 AND discount < 1);
