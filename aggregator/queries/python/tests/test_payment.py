"""What can fail, fails before a question is paid for; after that, an error says the question's id."""

from __future__ import annotations

import decimal
import fractions
import math
from collections.abc import Callable
from typing import Any

import grpc
import numpy
import pandas
import pytest

from bandana_queries import Client, DataSet, Find, QueryError, Where, _calls, between, predicate
from bandana_queries._calls import message
from bandana_queries._columns import Column, declared, name_of

ID = "00" * 15 + "07"


class Declined(grpc.RpcError):  # type: ignore[misc, unused-ignore]
    """What a call raises that fails with this status."""

    def __init__(self, status: grpc.StatusCode) -> None:
        self._status = status

    def code(self) -> grpc.StatusCode:
        """The status."""
        return self._status

    def details(self) -> str:
        """The server's words."""
        return "so it is"


class Curator:
    """Answers as it is told, one outcome for each call of a method, and counts the calls that are paid for."""

    def __init__(self, *columns: str) -> None:
        self.client = Client("http://127.0.0.1:9")
        self.data = DataSet(self.client._calls, "people")
        self.asked: list[Any] = []
        self.outcomes: list[Any] = []
        listed = message("ListDataSetsResponse", data_sets=[message("DataSet", name="people", columns=columns)])
        methods: dict[str, Callable[..., Any]] = {"ListDataSets": lambda *_, **__: listed}
        for paid in ("Ask", "AskSession", "OpenSession", "RegisterDataSet", "ListDebits"):
            methods[paid] = self._paid
        self.client._calls._methods = methods

    def _paid(self, request: Any, **_: Any) -> Any:
        self.asked.append(request)
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome


def numbers(*values: int) -> Any:
    """An answer of these numbers, each off by 1 at most."""
    found = [message("Number", value=value, accuracy=1.0) for value in values]
    return message("AskResponse", numbers=message("Numbers", numbers=found))


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lost answer is asked for again at once."""
    monkeypatch.setattr(_calls, "PAUSES", (0.0, 0.0, 0.0))


def test_columns_are_read_by_the_rules_of_the_server() -> None:
    names = {
        'x:y|"18..99"': ["y", "18..99"],
        'x:"18..99"|y': ["18..99", "y"],
        'x:"1..9"': ["1..9"],
        'x:a|"1..2:3!?4"|b*': ["a", "1..2:3!?4", "b"],
        'x:a..b|"c|d"': ["a..b", "c|d"],
        "x:0.5..9.5": ["0.5..9.5"],
        'x:5" pipe|""""|"""""a"""': ['5" pipe', '"', '""a"'],
        'x:y|"the rest*"*': ["y", "the rest*"],
        "x: y": [" y"],
    }
    for text, values in names.items():
        column = Column(text)
        assert (column.name, column.values(), column.is_numbers) == ("x", values, False), text
    ranges = {
        "age:18..20": ["18", "19", "20"],
        "age:-1..1!?0": ["-1", "0", "1"],
        "temp:-0.5..0.5:0.5?0.0": ["-0.5", "0.0", "0.5"],
        "temp:0..1:0.25": ["0.00", "0.25", "0.50", "0.75", "1.00"],
        "temp:0..0.50:.5": ["0.00", "0.50"],
        "big:9223372036854775800..9223372036854775802": [f"922337203685477580{i}" for i in range(3)],
        "far:-4503599.000000001..-4503599.000000000:0.000000001": ["-4503599.000000001", "-4503599.000000000"],
    }
    for text, values in ranges.items():
        assert Column(text).values() == values, text
    assert Column("age:18..99").of_codes([0, 2]) == [18, 20]
    assert Column('"a:1..2":0..3').values() == ["0", "1", "2", "3"]
    assert [name_of(text) for text in ('"a:b"@3', "who@3", "a@b:0..1")] == [None, None, "a@b"]
    assert (Column('"a:b"@3').name, Column('"a:b"@3').values()) == ("a:b", [])
    for wrong in ("x", 'x:"', 'x:"a"b', "x:", "x:9..1", "x:0..1:0"):
        with pytest.raises(ValueError):
            Column(wrong)


def test_what_is_declared_is_read_back() -> None:
    odd = ["<=50K", "a:b", "a,b", " leading", "18..99", '5" pipe', '"', '""a"', "é|*", "x", "*"]
    for values in (odd, odd[::-1]):
        column = Column(declared("x:1..2", values))
        assert (column.name, column.values()) == ("x:1..2", values)


def test_names_with_dots_are_answered() -> None:
    curator = Curator('x:y|"18..99"', "age:0..1", "who@3")
    curator.outcomes = [numbers(5, 6, 7, 8)]
    histogram = curator.data.histogram("x", "age", rho=0.1)
    assert histogram["18..99", "1"].value == 8 and histogram["y", "0"].value == 5

    share = message("NoisyShare", value=0.1, accuracy=0.1)
    codes = [message("TableColumn", codes=[1, 0, 1]), message("TableColumn", codes=[0, 1, 1])]
    table = message("Table", columns=['x:y|"18..99"', "age:0..1"], values=codes, largest=share, mean=share)
    curator.outcomes = [message("AskResponse", table=table)]
    made = curator.data.synthetic_table(3, rho=0.1).columns
    assert made == {"x": ["18..99", "y", "18..99"], "age": [0, 1, 1]}


def test_a_column_that_is_not_there_or_not_read_costs_nothing() -> None:
    curator = Curator("age:0..1", "new:<what a later version has>:")
    asks: list[Callable[[], object]] = [
        lambda: curator.data.histogram("size", rho=0.1),
        lambda: curator.data.histogram("new", rho=0.1),
        lambda: curator.data.synthetic_table(5, rho=0.1),
    ]
    for ask in asks:
        with pytest.raises((QueryError, ValueError)):
            ask()
    assert not curator.asked


@pytest.mark.parametrize("beta", [0, 0.0, -0.1, 1, 1.5, math.nan, math.inf, numpy.float64(0)])
def test_a_beta_that_is_no_probability_is_not_sent(beta: float) -> None:
    curator = Curator("age:0..9")
    for ask in asks_of(curator.data):
        with pytest.raises(ValueError, match="above 0 and below 1"):
            ask({"rho": 0.1, "beta": beta})
    with pytest.raises(ValueError, match="beta is"):
        curator.data.session("habits", queries=5, rho=0.1, beta=beta)
    assert not curator.asked


def asks_of(data: DataSet) -> list[Callable[[dict[str, Any]], object]]:
    """Every question, at a price that is still to be given."""
    return [
        lambda price: data.count(**price),
        lambda price: data.counts([None], **price),
        lambda price: data.histogram("age", **price),
        lambda price: data.sum("age", **price),
        lambda price: data.mean("age", **price),
        lambda price: data.variance("age", **price),
        lambda price: data.quantile("age", 0.5, **price),
        lambda price: data.most_common("age", **price),
        lambda price: data.synthetic_table(5, **price),
    ]


def test_prices_are_numbers_above_0() -> None:
    curator = Curator("age:0..9")

    def find(price: dict[str, Any]) -> object:
        wanted = Find(["age"], **{"delta": 1e-9, **price})
        return curator.client.register("x", "x.csv", ["age:other*"], rho=1.0, find=wanted)

    asks = asks_of(curator.data)
    asks.append(lambda price: curator.data.session("habits", queries=5, **price))
    asks.append(lambda price: curator.client.register("x", "x.csv", ["age:0..9"], **price))
    for ask in [*asks, find]:
        for wrong in (0, 0.0, -1.0, math.nan, math.inf, numpy.float32(-1)):
            for name in ("epsilon", "rho"):
                with pytest.raises(ValueError, match=f"{name} is .*above 0"):
                    ask({name: wrong})
            with pytest.raises(ValueError, match="delta is .*below 1"):
                ask({"epsilon": 1.0, "delta": wrong})
        for kind in (True, False, "1", b"1", [1.0], numpy.bool_(True)):
            for name in ("epsilon", "rho"):
                with pytest.raises(TypeError, match=f"{name} is .*give a number"):
                    ask({name: kind})
            with pytest.raises(TypeError, match="delta is .*give a number"):
                ask({"epsilon": 1.0, "delta": kind})
    with pytest.raises(TypeError, match="beta is True"):
        curator.data.count(rho=0.1, beta=True)
    assert not curator.asked

    for price in (numpy.float64(0.5), decimal.Decimal("0.5"), fractions.Fraction(1, 2)):
        curator.outcomes = [numbers(1)]
        curator.data.count(rho=price, beta=None)
        assert (curator.asked[-1].rho, curator.asked[-1].beta) == (0.5, 0.05)


def test_what_would_be_taken_for_something_else_is_not_asked() -> None:
    curator = Curator("age:0..9", "a:0..1", "b:0..1")
    data = curator.data
    wrongs: list[tuple[Callable[[], object], type[Exception], str]] = [
        (lambda: data.counts("age=3", rho=0.1), TypeError, r"give a list of conditions, such as \['age=3'\]"),
        (lambda: data.counts({"age": 3}, rho=0.1), TypeError, "count takes one"),
        (lambda: data.counts(None, rho=0.1), TypeError, "a list"),  # type: ignore[arg-type]
        (lambda: data.count(["age=3"], rho=0.1), TypeError, "give conditions"),  # type: ignore[arg-type]
        (lambda: data.synthetic_table(5, columns="ab", rho=0.1), TypeError, "give a list"),
        (lambda: data.session("s", queries=5, columns="ab", rho=0.1), TypeError, "give a list"),
        (lambda: data.synthetic_table(5, ways=0, rho=0.1), ValueError, "ways is 0"),
        (lambda: data.debits(0), ValueError, "limit is 0"),
        (lambda: data.quantile("age", True, rho=0.1), TypeError, "share is True"),
    ]
    for wrong, error, text in wrongs:
        with pytest.raises(error, match=text):
            wrong()
    assert not curator.asked


def test_values_of_any_kind_of_number_are_written_exactly() -> None:
    wheres: list[tuple[Any, str]] = [
        (numpy.int64(30), "30"),
        (numpy.uint8(200), "200"),
        (numpy.float32(0.1), "0.1"),
        (numpy.float64(30.5), "30.5"),
        (numpy.str_("a,b"), '"a,b"'),
        (2**63 - 1, "9223372036854775807"),
        (decimal.Decimal("0.50"), "0.50"),
        (fractions.Fraction(2**60, 1), str(2**60)),
        (fractions.Fraction(1, 4), "0.25"),
        (numpy.array([30, 20]), "30|20"),
        (numpy.array(["Ulm", "x|y"]), 'Ulm|"x|y"'),
        (pandas.Series([1.5, 2.0]), "1.5|2.0"),
        (pandas.RangeIndex(3), "0|1|2"),
        ((value for value in (3, "a")), "3|a"),
        (map(int, "21"), "2|1"),
        ({"b": 1, "a": 2}.keys(), "a|b"),
        ({3, 1}, "1|3"),
        (between(numpy.int64(30), decimal.Decimal("39.5")), "30..39.5"),
    ]
    for value, text in wheres:
        assert predicate({"a": value}) == f"a={text}"
    wrongs: list[tuple[Any, type[Exception]]] = [
        (True, TypeError),
        (numpy.bool_(True), TypeError),
        (None, TypeError),
        (b"Bonn", TypeError),
        (bytearray(b"Bonn"), TypeError),
        ({"a": 1}, TypeError),
        (numpy.array(30), TypeError),
        (numpy.array([[1, 2]]), TypeError),
        (numpy.timedelta64(3, "s"), TypeError),
        ([1, None], TypeError),
        (iter(()), ValueError),
        (numpy.array([]), ValueError),
        (between(True, 3), TypeError),
        (between("1,b=2", 3), TypeError),  # type: ignore[arg-type]
        (between(math.nan, 3), ValueError),
    ]
    for value, error in wrongs:
        with pytest.raises(error, match="value|two numbers"):
            predicate({"a": value})
    where: Where = {"a": numpy.int64(3), "b": numpy.array([1]), "c": decimal.Decimal(1)}
    assert predicate(where) == "a=3,b=1,c=1"


def test_an_answer_that_is_not_read_can_be_asked_for_again() -> None:
    curator = Curator("age:0..2")
    data = curator.data
    asks: list[Callable[[], object]] = [
        lambda: data.histogram("age", rho=0.1),
        lambda: data.counts([None, "age=1"], rho=0.1),
        lambda: data.mean("age", rho=0.1),
        lambda: data.most_common("age", rho=0.1),
        lambda: data.synthetic_table(5, rho=0.1),
    ]
    for ask in asks:
        curator.outcomes = [numbers(1)]
        with pytest.raises(QueryError, match="was paid for.*question_id='[0-9a-f]{32}'") as lost:
            ask()
        assert lost.value.question_id == curator.asked[-1].question_id.hex()
    curator.outcomes = [message("AskResponse", table=message("Table"))]
    with pytest.raises(QueryError, match="table instead of numbers"):
        data.count(rho=0.1)


def test_the_id_of_a_question_that_may_be_paid_is_told() -> None:
    curator = Curator("age:0..2")
    status = grpc.StatusCode
    cases = [
        # (what the calls end with, whether the id is told)
        ([status.INVALID_ARGUMENT], False),
        ([status.FAILED_PRECONDITION], False),
        ([status.INTERNAL], True),
        ([status.UNKNOWN], True),
        ([status.CANCELLED], True),
        ([status.RESOURCE_EXHAUSTED], True),
        ([status.UNAVAILABLE] * 4, True),
        # The first attempt may have been answered, whatever becomes of the second.
        ([status.DEADLINE_EXCEEDED, status.UNAUTHENTICATED], True),
        ([status.UNAVAILABLE, status.FAILED_PRECONDITION], True),
    ]
    asks: list[Callable[[], object]] = [
        lambda: curator.data.count(rho=0.1),
        lambda: curator.client.session("habits").count(),
    ]
    for statuses, is_told in cases:
        for ask in asks:
            curator.outcomes = [Declined(one) for one in statuses]
            with pytest.raises(QueryError) as refused:
                ask()
            assert not curator.outcomes and refused.value.code == statuses[-1].name
            told = curator.asked[-1].question_id.hex() if is_told else None
            assert refused.value.question_id == told and (told or "so it is") in str(refused.value)
    curator.outcomes = [KeyboardInterrupt()]
    with pytest.raises(KeyboardInterrupt, match=f"question_id='{ID}'"):
        curator.data.count(rho=0.1, question_id=ID)


def test_what_is_paid_once_is_looked_for_before_it_is_paid_again() -> None:
    curator = Curator()
    calls: list[tuple[Callable[[], object], str]] = [
        (lambda: curator.data.session("habits", queries=5, rho=0.1), r"client.session\('habits'\)"),
        (lambda: curator.client.register("x", "x.csv", ["a:0..1"], rho=0.1), r"client.dataset\('x'\)"),
    ]
    for call, hint in calls:
        curator.outcomes = [Declined(grpc.StatusCode.UNAVAILABLE), Declined(grpc.StatusCode.NOT_FOUND)]
        with pytest.raises(QueryError, match=hint):
            call()
        with pytest.raises(QueryError, match="so it is$"):
            call()


def test_older_servers_say_one_accuracy_for_all_numbers() -> None:
    curator = Curator("age:0..2")
    old = message("Numbers", numbers=[message("Number", value=40)], accuracy=7.0)
    curator.outcomes = [message("AskResponse", numbers=old)]
    found = curator.data.count(rho=0.1)
    assert (found.low, found.high) == (33, 47)
