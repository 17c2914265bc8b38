-- Version 5: guardrails, which are off in earlier experiments.
ALTER TABLE experiment
    ADD COLUMN burn_in_reports bigint NOT NULL DEFAULT 0 CHECK (burn_in_reports >= 0),
    ADD COLUMN holdout_share double precision NOT NULL DEFAULT 0
        CHECK (holdout_share BETWEEN 0 AND 1);
