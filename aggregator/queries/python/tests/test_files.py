"""One content has one budget, whichever tool wrote it: each type, format and compression."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable, Sequence
from pathlib import Path

import duckdb
import pandas
import polars
import pyarrow
import pyarrow.parquet
import pytest
from conftest import Server

from bandana_queries import Client, QueryError

DAYS = [datetime.date(2024, 1, 1) + datetime.timedelta(days=7 * i) for i in range(40)]
VALUES: dict[str, tuple[Sequence[object], str]] = {
    "whole": (list(range(40)), "v:0..39"),
    "negative": ([-(i % 7) for i in range(40)], "v:-6..0"),
    "double": ([i / 4 for i in range(40)], "v:0..10:0.25"),
    "tenths": ([(i * 3 % 20) / 10 for i in range(40)], "v:0..2:0.1"),
    "truth": ([i % 3 == 0 for i in range(40)], "v:no|yes"),
    "text": (["a,b", 'say "x"', "é", "<=50K"] * 10, 'v:"a,b"|"say ""x"""|é|"<=50K"'),
    "day": (DAYS, "v:" + "|".join(map(str, DAYS))),
    "money": ([decimal.Decimal(i * 50) / 100 for i in range(40)], "v:0..20:0.5"),
    "gap": ([None if i % 5 == 0 else i for i in range(40)], "v:0..39?0"),
    "names": ([None if i % 5 == 0 else "x" for i in range(40)], "v:x|NA"),
}


def writers(values: Sequence[object]) -> dict[str, Callable[[Path], object]]:
    """Ways to write a column ``v`` beside a column ``id``, by the end of the file's name."""
    rows = {"id": [f"p{i}" for i in range(40)], "v": values}
    table = pyarrow.table(rows)
    frame, wide = polars.from_arrow(table), table.to_pandas()
    assert isinstance(frame, polars.DataFrame)
    nullable = wide.convert_dtypes(dtype_backend="pyarrow")
    duck = duckdb.connect()
    duck.register("t", table)
    made: dict[str, Callable[[Path], object]] = {
        "polars.csv": frame.write_csv,
        "polars-semicolon.csv": lambda path: frame.write_csv(path, separator=";"),
        "pandas.csv": lambda path: nullable.to_csv(path, index=False),
        "pandas-index.csv": lambda path: nullable.to_csv(path, index=True),
        "pandas-tab-utf16.csv": lambda path: nullable.to_csv(path, index=False, sep="\t", encoding="utf-16"),
        "duckdb.csv": lambda path: duck.execute(f"COPY t TO '{path}' (HEADER)"),
        "duckdb.parquet": lambda path: duck.execute(f"COPY t TO '{path}' (FORMAT parquet)"),
        "pandas.parquet": lambda path: wide.to_parquet(path),
        "polars.parquet": frame.write_parquet,
        "shuffled.parquet": lambda path: frame.reverse().select("v", "id").write_parquet(path),
    }
    for compression in ("none", "snappy", "gzip", "zstd", "lz4", "brotli"):
        made[f"{compression}.parquet"] = lambda path, compression=compression: pyarrow.parquet.write_table(  # type: ignore[misc]
            table, path, compression=compression
        )
    return made


@pytest.mark.parametrize("kind", VALUES)
def test_one_content_has_one_budget(kind: str, client: Client, server: Server) -> None:
    values, column = VALUES[kind]
    first, *others = writers(values).items()
    for place, (name, write) in enumerate([first, *others]):
        file = f"{kind}-{name}"
        write(server.files / file)
        if place == 0:
            data = client.register(kind, file, [column], epsilon=1.0)
            assert data.rows == 40
            continue
        with pytest.raises(QueryError) as refused:
            client.register(f"{kind}-{place}", file, [column], epsilon=1.0)
        assert refused.value.code == "ALREADY_EXISTS", (file, str(refused.value))
        assert f'"{kind}"' in str(refused.value) or kind in str(refused.value), str(refused.value)


def test_uuids_of_duckdb_are_one_content_as_text_and_as_bytes(client: Client, server: Server) -> None:
    duck = duckdb.connect()
    duck.execute(
        "CREATE TABLE u AS SELECT i % 10 k, ('00000000-0000-4000-8000-' || lpad(i::VARCHAR, 12, '0'))::UUID id "
        "FROM range(111) r(i)"
    )
    duck.execute(f"COPY u TO '{server.files}/uuids.csv' (HEADER)")
    duck.execute(f"COPY u TO '{server.files}/uuids.parquet' (FORMAT parquet)")
    client.register("uuids", "uuids.csv", ["k:0..9"], rho=1)
    with pytest.raises(QueryError, match="uuids"):
        client.register("uuids-2", "uuids.parquet", ["k:0..9"], rho=1)
