-- Version 14: the public log of what devices are told. `number` begins at 0; `roots` are those of the
-- largest perfect trees that the log is made of with this epoch, 32 bytes each; `content` is an encoded
-- message, and empty once it is kept no longer.
CREATE TABLE log_epoch (
    number       INTEGER PRIMARY KEY CHECK (number >= 0),
    unix_seconds INTEGER NOT NULL CHECK (unix_seconds >= 0),
    entry        BLOB NOT NULL CHECK (length(entry) = 32),
    roots        BLOB NOT NULL CHECK (length(roots) % 32 = 0),
    content      BLOB NOT NULL
) STRICT;
