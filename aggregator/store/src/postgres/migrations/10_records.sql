-- Version 10: the record of an experiment, which people write for people. It is empty in earlier
-- experiments.
ALTER TABLE experiment ADD COLUMN record bytea NOT NULL DEFAULT '';
