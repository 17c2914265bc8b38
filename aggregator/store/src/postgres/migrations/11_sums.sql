-- Version 11: sums of checksums by functions whose plans are kept. Functions in SQL were planned
-- anew in every statement, and also where there was nothing to add.
CREATE OR REPLACE FUNCTION add_to_table_sum(of_table text, more bigint, checksums bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE table_sum SET rows = rows + more, sum = sum + checksums
    WHERE name = of_table AND backend = pg_backend_pid();
    IF NOT FOUND THEN
        INSERT INTO table_sum AS t (name, backend, rows, sum)
        VALUES (of_table, pg_backend_pid(), more, checksums)
        ON CONFLICT (name, backend)
        DO UPDATE SET rows = t.rows + excluded.rows, sum = t.sum + excluded.sum;
    END IF;
END $$;
CREATE OR REPLACE FUNCTION sum_fresh() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE more bigint; checksums bigint;
BEGIN
    SELECT count(*), sum(checksum) INTO more, checksums FROM fresh;
    IF more > 0 THEN
        PERFORM add_to_table_sum(TG_TABLE_NAME, more, checksums);
    END IF;
    RETURN NULL;
END $$;
CREATE OR REPLACE FUNCTION sum_changed() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE checksums bigint;
BEGIN
    SELECT (SELECT sum(checksum) FROM fresh) - (SELECT sum(checksum) FROM gone) INTO checksums;
    IF checksums <> 0 THEN
        PERFORM add_to_table_sum(TG_TABLE_NAME, 0, checksums);
    END IF;
    RETURN NULL;
END $$;
CREATE OR REPLACE FUNCTION sum_gone() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE less bigint; checksums bigint;
BEGIN
    SELECT count(*), sum(checksum) INTO less, checksums FROM gone;
    IF less > 0 THEN
        PERFORM add_to_table_sum(TG_TABLE_NAME, -less, -checksums);
    END IF;
    RETURN NULL;
END $$;
CREATE OR REPLACE FUNCTION sum_fresh_uploads() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE d record;
BEGIN
    FOR d IN SELECT day, count(*) AS uploads, sum(checksum) AS checksums FROM fresh
        GROUP BY day ORDER BY day
    LOOP
        PERFORM add_to_table_sum('upload_' || d.day, d.uploads, d.checksums);
    END LOOP;
    RETURN NULL;
END $$;
