"""What is asked from Python is answered within its bounds, paid once, and refused with what to do."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy
import pytest
from conftest import Server

from bandana_queries import Budget, Client, DataSet, Find, QueryError, between, predicate

ROWS = 4_000

People = tuple[DataSet, list[tuple[int, float, str, str]]]


@pytest.fixture(scope="module")
def people(client: Client, server: Server) -> People:
    """People with an age, a temperature, a city and whether they are ill."""
    seeded = random.Random(7)
    rows = [
        (
            seeded.randint(18, 99),
            seeded.randint(-10, 80) / 2,
            seeded.choice(["Bonn", "Ulm", "Kiel, by the sea"]),
            seeded.choice(["no", "no", "yes"]),
        )
        for _ in range(ROWS)
    ]
    lines = [f'{age},{temp},"{city}",{ill}\n' for age, temp, city, ill in rows]
    (server.files / "people.csv").write_text("age,temp,city,ill\n" + "".join(lines))
    columns = ["age:18..99", "temp:-5..40:0.5", 'city:Bonn|Ulm|"Kiel, by the sea"', "ill:no|yes"]
    return client.register("people", "people.csv", columns, rho=400.0), rows


def test_answers_lie_within_their_bounds(people: People) -> None:
    data, rows = people
    beta = 1e-9
    ill = [row for row in rows if row[3] == "yes"]
    sea = {"city": "Kiel, by the sea"}
    prices: list[dict[str, Any]] = [{"rho": 1.0}, {"epsilon": 2.0}, {"epsilon": 2.0, "delta": 1e-9}]
    for price in prices:
        found = [
            (data.count({"ill": "yes"}, beta=beta, **price), len(ill)),
            (data.count(beta=beta, **price), ROWS),
            (data.count(sea | {"age": between(30, 39)}, beta=beta, **price),
             sum(row[2].startswith("Kiel") and 30 <= row[0] < 40 for row in rows)),
            (data.sum("temp", beta=beta, **price), sum(row[1] for row in rows)),
            (data.sum("age", where={"ill": "yes"}, beta=beta, **price), sum(row[0] for row in ill)),
            (data.sum("temp", squares=True, beta=beta, **price), sum(row[1] ** 2 for row in rows)),
            (data.mean("age", beta=beta, **price), statistics.fmean(row[0] for row in rows)),
            (data.mean("temp", where={"ill": "yes"}, beta=beta, **price),
             statistics.fmean(row[1] for row in ill)),
            (data.variance("temp", beta=beta, **price), statistics.pvariance(row[1] for row in rows)),
            (data.variance("age", where="ill=yes", beta=beta, **price),
             statistics.pvariance(row[0] for row in ill)),
        ]
        for place, (number, exact) in enumerate(found):
            assert number.low - 1e-6 <= exact <= number.high + 1e-6, (price, place, number, exact)
            assert number.low <= number.value <= number.high
            assert number.high - number.low < 0.5 * ROWS * 99, (price, place)
    # Bins that do not overlap cost as two counts, whatever their number.
    bins = [{"age": between(low, low + 1)} for low in range(18, 98, 2)]
    few, many = data.counts(bins[:2], epsilon=1.0), data.counts(bins, epsilon=1.0)
    assert many[0].high - many[0].low <= 3 * (few[0].high - few[0].low)


def test_tables_and_choices(people: People) -> None:
    data, rows = people
    histogram = data.histogram("city", "ill", rho=1.0, beta=1e-9)
    assert histogram.columns == ("city", "ill") and len(histogram.cells) == 6
    sea = histogram["Kiel, by the sea", "yes"]
    exact = sum(row[2].startswith("Kiel") and row[3] == "yes" for row in rows)
    assert sea.low <= exact <= sea.high
    assert len(histogram.to_pandas()) == len(histogram.to_polars()) == 6
    with pytest.raises(KeyError):
        histogram["Rome", "yes"]
    ill_only = data.histogram("city", where={"ill": "yes"}, rho=1.0)
    assert sum(number.value for _, number in ill_only.cells) < ROWS / 2

    ages = sorted(row[0] for row in rows if row[3] == "yes")
    for noisy_max in (False, True):
        median = data.quantile("age", 0.5, where={"ill": "yes"}, noisy_max=noisy_max, rho=1.0)
        assert abs(int(median.value) - statistics.median(ages)) <= 2 and median.shortfall < 50
        found = data.quantile(
            "age", 0.5, where={"ill": "yes"}, noisy_max=noisy_max, interval=True, beta=1e-9, rho=1.0
        )
        assert found.low is not None and found.high is not None and median.low is None
        assert int(found.low) <= statistics.median_low(ages) <= int(found.high) <= int(found.low) + 9
    everybody = data.quantile("age", 0.0, interval=True, beta=1e-9, epsilon=1.0)
    assert everybody.low is not None and int(everybody.low) <= min(row[0] for row in rows)
    assert data.most_common("ill", epsilon=1.0).value == "no"
    assert -5 <= float(data.quantile("temp", 0.1, epsilon=1.0).value) <= 40

    table = data.synthetic_table(500, rho=2.0)
    frame = table.to_pandas()
    assert list(frame.columns) == ["age", "temp", "city", "ill"] and len(frame) == 500
    assert frame["age"].between(18, 99).all() and frame["temp"].between(-5, 40).all()
    assert set(frame["city"]) <= {"Bonn", "Ulm", "Kiel, by the sea"}
    assert table.to_polars().shape == (500, 4)
    assert 0 <= table.worst.high < 1


def test_names_like_ranges_are_answered(client: Client, server: Server) -> None:
    lines = [f'{["y", "18..99", "a|b"][i % 3]},{i % 2}\n' for i in range(300)]
    (server.files / "dotted.csv").write_text("x,flag\n" + "".join(lines))
    dotted = client.register("dotted", "dotted.csv", ['x:y|"18..99"|"a|b"', "flag:0..1"], rho=400.0)
    assert dotted.columns == ['x:y|"18..99"|"a|b"', "flag:0..1"]
    histogram = dotted.histogram("x", "flag", rho=50.0, beta=1e-9)
    assert [cell for cell, _ in histogram.cells][2:4] == [("18..99", "0"), ("18..99", "1")]
    assert histogram["18..99", "1"].low <= 50 <= histogram["18..99", "1"].high
    made = dotted.synthetic_table(60, rho=50.0).columns
    assert set(made["x"]) == {"y", "18..99", "a|b"} and set(made["flag"]) == {0, 1}


def test_conditions_have_the_numbers_of_other_packages(people: People) -> None:
    data, rows = people
    few = numpy.array([30, 31])
    found = data.count({"age": few, "temp": between(numpy.float32(-5), Decimal("9.5"))}, rho=1.0, beta=1e-9)
    assert found.low <= sum(row[0] in few and row[1] <= 9.5 for row in rows) <= found.high


def test_sessions_answer_many_counts(client: Client, people: People) -> None:
    data, rows = people
    with data.session("habits", queries=50, columns=["city", "ill"], rho=1.0) as session:
        found = session.count({"ill": "yes"})
        assert session.accuracy is not None
        assert abs(found - sum(row[3] == "yes" for row in rows)) <= session.accuracy
    again = client.session("habits")
    assert again.accuracy is None and abs(again.count() - ROWS) < 200
    assert again.accuracy == pytest.approx(session.accuracy)


def test_budgets_are_kept(client: Client, server: Server) -> None:
    (server.files / "few.csv").write_text("a\n" + "1\n2\n" * 50)
    few = client.register("few", "few.csv", ["a:0..9"], epsilon=1.0)
    assert (few.rows, few.columns) == (100, ["a:0..9"])
    few.count({"a": 1}, epsilon=0.4)
    assert few.budget == Budget("epsilon", 1.0, 0.4) and few.budget.left == 0.6
    assert "<progress" in few.budget._repr_html_() and "0.6 left" in few.budget._repr_html_()
    with pytest.raises(QueryError, match="nothing was spent") as refused:
        few.count({"a": 1}, epsilon=0.7)
    assert refused.value.code == "FAILED_PRECONDITION" and refused.value.question_id is None
    # The same question by its id is paid once.
    ids = "00" * 15 + "07"
    once = few.count({"a": 2}, epsilon=0.1, question_id=ids)
    assert few.count({"a": 2}, epsilon=0.1, question_id=ids) == once
    assert few.budget.spent == 0.5
    assert [debit.purpose for debit in few.debits(1)] == ["count of a=2, epsilon 0.1"]
    few.withdraw()
    with pytest.raises(QueryError, match="withdrawn"):
        few.count(epsilon=0.1)
    assert few.name in [one.name for one in client.datasets()]


def test_errors_say_what_to_do(client: Client, people: People) -> None:
    data, _ = people
    wrongs: list[tuple[Callable[[], object], type[Exception], str]] = [
        (lambda: data.count(), TypeError, "give epsilon"),
        (lambda: data.count(epsilon=1.0, rho=1.0), TypeError, "give epsilon"),
        (lambda: data.count(epsilon=1.0, alpha=1.0), TypeError, "unknown: alpha"),
        (lambda: data.count({"age": True}, rho=1.0), TypeError, "is no value"),
        (lambda: data.count({"age": []}, rho=1.0), ValueError, "no row can meet it"),
        (lambda: data.count({"size": 1}, rho=1.0), QueryError, "no column"),
        (lambda: data.count({"city": "Rome"}, rho=1.0), QueryError, "it has Bonn"),
        (lambda: data.mean("city", rho=1.0), QueryError, "has no numbers"),
        (lambda: data.mean("size", rho=1.0), QueryError, 'no column "size"'),
        (lambda: client.dataset("nobody"), QueryError, "no data set 'nobody'"),
        (lambda: client.register("x", "x.csv", "a:0..1", rho=1.0), TypeError, "a list"),
        (lambda: client.register("x", "x.csv", ["a:0..1"], rho=1.0), QueryError, "x.csv"),
        (lambda: Client("http://bandana.example.org"), ValueError, "not encrypted"),
        (lambda: Client("127.0.0.1:7302"), ValueError, "no address"),
        (lambda: data.session("habits", queries=5), TypeError, "give epsilon"),
    ]
    for wrong, error, text in wrongs:
        with pytest.raises(error, match=text):
            wrong()
    with Client("http://127.0.0.1:9") as nowhere, pytest.raises(QueryError, match="is the server there"):
        nowhere.datasets()


def test_predicates_are_written_as_the_server_reads_them() -> None:
    assert predicate(None) == "" and predicate("a=1") == "a=1"
    assert predicate({"a": {3, 1}, "b": range(5, 8)}) == "a=1|3,b=5..7"
    assert predicate({"a:b": 'say "x"', "c": "18..99", "d": " x"}) == '"a:b"=say "x",c="18..99",d=" x"'
    assert predicate({"temp": between(-0.5, 1)}) == "temp=-0.5..1"
    for gap in (range(0, 10, 2), range(0)):
        with pytest.raises(ValueError):
            predicate({"a": gap})


def test_names_of_columns_are_read_as_the_server_writes_them() -> None:
    from bandana_queries._columns import Column

    odd = Column('"a:b":"<=50K"|">50K"|"say ""x"""|plain|other*')
    assert (odd.name, odd.values()) == ("a:b", ["<=50K", ">50K", 'say "x"', "plain", "other"])
    assert Column('x:"18..99"|y').values() == ["18..99", "y"]
    assert Column('x:y|"the rest"*').values() == ["y", "the rest"]
    temp = Column("temp:-0.5..1.0:0.25!?0.00")
    assert temp.values() == ["-0.50", "-0.25", "0.00", "0.25", "0.50", "0.75", "1.00"]
    assert math.isclose(temp.of_codes([6])[0], 1.0)
    assert Column("age:18..20?19").of_codes([0, 2]) == [18, 20]


def test_the_package_says_what_it_is(pytestconfig: pytest.Config) -> None:
    import bandana_queries

    for name in bandana_queries.__all__:
        assert getattr(bandana_queries, name).__doc__ or name == "Where", name
    assert (Path(bandana_queries.__file__).parent / "py.typed").exists()


def test_all_rows_of_a_person_cost_one_price(client: Client, server: Server) -> None:
    lines = [f"{person % 500},{person % 7},a|b\n" for person in range(2_000)]
    (server.files / "visits.csv").write_text("patient no,cost,kind\n" + "".join(lines))
    columns: dict[str, str | list[str]] = {"patient no": "@3", "cost": "0..6", "kind": ["a|b", "<=c"]}
    visits = client.register("visits", "visits.csv", columns, epsilon=32.0)
    assert visits.columns == ["patient no@3", "cost:0..6", 'kind:"a|b"|"<=c"']
    assert (visits.rows, visits.rows_of_each_person) == (1_500, 3)
    count = visits.count({"kind": "a|b"}, epsilon=3.0, beta=1e-9)
    assert count.low <= 1_500 <= count.high and count.high - count.low > 20
    mean = visits.mean("cost", epsilon=9.0, beta=1e-9)
    # Of the rows that are kept: they are drawn, so their mean differs from that of all.
    assert mean.low <= 3.2 and 2.8 <= mean.high and mean.high - mean.low < 0.2
    assert visits.histogram("kind", epsilon=3.0).to_pandas()["rows"].sum() > 1_400
    with pytest.raises(QueryError, match='there is no column "patient no"'):
        visits.mean("patient no", epsilon=1.0)
    assert visits.budget.left == 17.0


def test_names_that_nobody_knows_are_found(client: Client, server: Server) -> None:
    names = ["Quay", '"Main, St"']
    lines = [f"{names[i % 2]},{i % 10}\n" for i in range(2_000)] + ["Secret Lane,3\n"]
    (server.files / "streets.csv").write_text("street,age\n" + "".join(lines))
    columns = ["street:other*", "age:0..9"]
    with pytest.raises(TypeError, match="list of columns"):
        client.register("streets", "streets.csv", columns, rho=1, find=Find("street", delta=1e-9, rho=0.1))
    with pytest.raises(TypeError, match="give epsilon"):
        client.register("streets", "streets.csv", columns, rho=1, find=Find(["street"], delta=1e-9))
    find = Find(["street"], delta=1e-9, rho=0.1)
    streets = client.register("streets", "streets.csv", columns, rho=1, find=find)
    assert streets.columns == ['street:"Main, St"|Quay|other*', "age:0..9"]
    assert streets.budget.left == 0.9
    count = streets.count({"street": "Quay"}, rho=0.5)
    assert count.low <= 1_000 <= count.high
    [debit] = [one for one in streets.debits() if one.purpose.startswith("names of street")]
    assert "at delta 1e-9" in debit.purpose
