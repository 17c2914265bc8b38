-- Version 14: store cells. The home store knows its cells by number and id, and from which day on
-- which of them share the uploads. `routed_until` is the last day that some replica may have routed
-- by these generations: a new one begins later. A cell knows the store that it belongs to, and its
-- number there; every other database has an empty `store_cell_place`.
CREATE TABLE store_cell (
    number integer PRIMARY KEY CHECK (number > 0),
    id     bytea NOT NULL UNIQUE CHECK (octet_length(id) = 16)
);
CREATE TABLE store_cell_generation (
    from_day integer PRIMARY KEY CHECK (from_day >= 0),
    cells    bigint[] NOT NULL CHECK (cardinality(cells) > 0)
);
CREATE TABLE store_cell_routing (
    one          integer PRIMARY KEY CHECK (one = 1),
    routed_until integer NOT NULL CHECK (routed_until >= 0)
);
INSERT INTO store_cell_routing VALUES (1, 0);
CREATE TABLE store_cell_place (
    one    integer PRIMARY KEY CHECK (one = 1),
    home   bytea NOT NULL CHECK (octet_length(home) = 16),
    number integer NOT NULL CHECK (number > 0)
);
