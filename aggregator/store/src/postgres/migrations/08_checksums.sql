-- The table of sums, and the functions that maintain it. `fresh` and `gone` are the rows that a
-- statement has added and removed.
CREATE TABLE table_sum (
    name    text NOT NULL,
    backend integer NOT NULL,
    rows    bigint NOT NULL,
    sum     bigint NOT NULL,
    PRIMARY KEY (name, backend)
) WITH (fillfactor = 50);
CREATE FUNCTION row_is_damaged(name text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'a row of % is not as it was written', name USING ERRCODE = 'data_corrupted';
END $$;
CREATE FUNCTION add_to_table_sum(of_table text, more bigint, checksums bigint) RETURNS void
LANGUAGE sql AS $$
    INSERT INTO table_sum AS t (name, backend, rows, sum)
    SELECT of_table, pg_backend_pid(), more, COALESCE(checksums, 0)
    WHERE more <> 0 OR checksums <> 0
    ON CONFLICT (name, backend)
    DO UPDATE SET rows = t.rows + excluded.rows, sum = t.sum + excluded.sum
$$;
CREATE FUNCTION sum_fresh() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM add_to_table_sum(TG_TABLE_NAME, count(*), sum(checksum)) FROM fresh;
    RETURN NULL;
END $$;
CREATE FUNCTION sum_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM add_to_table_sum(TG_TABLE_NAME, 0,
        (SELECT sum(checksum) FROM fresh) - (SELECT sum(checksum) FROM gone));
    RETURN NULL;
END $$;
CREATE FUNCTION sum_gone() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM add_to_table_sum(TG_TABLE_NAME, -count(*), -sum(checksum)) FROM gone;
    RETURN NULL;
END $$;
CREATE FUNCTION sum_fresh_uploads() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM add_to_table_sum('upload_' || d.day, d.uploads, d.checksums)
    FROM (SELECT day, count(*) AS uploads, sum(checksum) AS checksums FROM fresh
        GROUP BY day ORDER BY day) d;
    RETURN NULL;
END $$;
