-- Version 7: the id of the store. It is made here, with a new store or with the upgrade of an old
-- one, and stays: dumps and standbys have it too.
CREATE TABLE store (
    one integer PRIMARY KEY CHECK (one = 1),
    id  bytea NOT NULL CHECK (octet_length(id) = 16)
);
INSERT INTO store (one, id) VALUES (1, uuid_send(gen_random_uuid()));
CREATE FUNCTION store_keeps_its_id() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'a store keeps its id';
END $$;
CREATE TRIGGER store_keeps_its_id BEFORE UPDATE OR DELETE OR TRUNCATE ON store
    FOR EACH STATEMENT EXECUTE FUNCTION store_keeps_its_id();
