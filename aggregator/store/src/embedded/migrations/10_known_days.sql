-- Version 10: the day since which all disclosure ids of a trusted experiment are still stored. In
-- earlier experiments the day is unknown, and taken to be the first day of their window.
ALTER TABLE trusted_experiment ADD COLUMN known_from INTEGER NOT NULL DEFAULT 0
    CHECK (known_from >= 0);
UPDATE trusted_experiment SET known_from = oldest_day;
