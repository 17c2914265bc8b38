-- Version 12: the record of an experiment, which people write for people. It is empty in earlier
-- experiments.
ALTER TABLE experiment ADD COLUMN record BLOB NOT NULL DEFAULT x'';
