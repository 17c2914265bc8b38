-- Version 7: guardrails, which are off in earlier experiments.
ALTER TABLE experiment ADD COLUMN burn_in_reports INTEGER NOT NULL DEFAULT 0
    CHECK (burn_in_reports >= 0);
ALTER TABLE experiment ADD COLUMN holdout_share REAL NOT NULL DEFAULT 0
    CHECK (holdout_share BETWEEN 0 AND 1);
