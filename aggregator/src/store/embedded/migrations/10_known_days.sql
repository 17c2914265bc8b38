-- Version 10: from which day on all names of disclosures to a trusted experiment are still there. Of
-- experiments that were there before it is not known, so that it is where their window begins.
ALTER TABLE trusted_experiment ADD COLUMN known_from INTEGER NOT NULL DEFAULT 0
    CHECK (known_from >= 0);
UPDATE trusted_experiment SET known_from = oldest_day;
