"""Private answers about data sets of a Bandana server.

>>> from bandana_queries import Client, between
>>> client = Client(url)                               # the server's address for operators
>>> people = client.register(
...     "people", "people.csv", ["age:18..99", "city:Bonn|Ulm", "ill:no|yes"], rho=0.5
... )
>>> ill = people.count({"ill": "yes", "age": between(18, 59)}, rho=0.01)
>>> ill.low <= ill.value <= ill.high
True
>>> people.budget.left
0.49

Nothing here sees a row. The server answers with noise, and takes the price of each answer from the budget
of the data set before the answer leaves.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Callable, Iterable, Mapping, Sequence, TypeVar

from ._answers import Budget, Choice, Histogram, Number, Table
from ._calls import Calls, QueryError, message
from ._columns import Column, declared, name_of
from ._predicates import Between, Where, between, predicate
from ._prices import number, price_fields, probability

__all__ = [
    "Between",
    "Budget",
    "Choice",
    "Client",
    "DataSet",
    "Debit",
    "Find",
    "Histogram",
    "Number",
    "QueryError",
    "Session",
    "Table",
    "Where",
    "between",
    "predicate",
]

NANOS = 1_000_000_000

BETA = 0.05

Read = TypeVar("Read")


@dataclass(frozen=True)
class Find:
    """A search for the names of columns such as ``"street:other*"``, paid from the budget at once.

    Rows of each name are counted with noise, at a price of ``epsilon`` or ``rho``. Names with many rows become
    values of the column for good, and every other counts as the last one, here ``other``. ``delta`` is the
    probability that a name is told which only one person has, at most .001. Columns share price and delta.
    """

    columns: Sequence[str]
    delta: float
    epsilon: float | None = None
    rho: float | None = None

    def _message(self) -> Any:
        if isinstance(self.columns, str):
            raise TypeError("find: give a list of columns")
        if (self.epsilon is None) == (self.rho is None):
            raise TypeError("find: give epsilon=..., or rho=...")
        delta, price = probability("delta", self.delta), price_fields(self.epsilon, None, self.rho)
        return message("PartitionSelection", columns=list(self.columns), delta=delta, **price)


@dataclass(frozen=True)
class Debit:
    """What was taken from a budget, and what for."""

    number: int
    unix_seconds: int
    caller: str
    purpose: str
    price: float


class Client:
    """A server, at its address for operators: ``url``, or what ``BANDANA_OPERATOR_URL`` has, or
    ``http://127.0.0.1:7302``.

    ``token`` is a token with the role ``analyst`` or ``custodian``, if the server asks for one; or what
    ``BANDANA_OPERATOR_TOKEN`` has. ``ca`` is a
    file with the certificates that may have signed the server's; ``None``: those of the system.
    ``certificate`` is a certificate to show, and its key. A call may take ``timeout`` seconds.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        ca: str | Path | None = None,
        certificate: tuple[str | Path, str | Path] | None = None,
        timeout: float = 120.0,
    ) -> None:
        pair = (Path(certificate[0]), Path(certificate[1])) if certificate else None
        url = url or os.environ.get("BANDANA_OPERATOR_URL", "http://127.0.0.1:7302")
        token = token or os.environ.get("BANDANA_OPERATOR_TOKEN")
        self._calls = Calls(url, token, Path(ca) if ca else None, pair, timeout)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connection."""
        self._calls.close()

    def register(
        self,
        name: str,
        file: str,
        columns: Sequence[str] | Mapping[str, str | Sequence[str]],
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        rho: float | None = None,
        find: Find | None = None,
    ) -> DataSet:
        """Gives a file of the server's directory a budget, for good.

        Columns and their values are public: choose them before you look at the data. They are written as for
        ``bandana query register``: ``"age:18..99"``, ``"temp:-5..40:0.5"``, ``"city:Bonn|Ulm"``; or as a
        dictionary, ``{"age": "18..99", "city": ["Bonn", "Ulm"], "patient": "@3"}``, where names in a list
        may have any character. ``"patient@3"`` says whose row it is: at most 3 rows of each person are kept,
        and prices are for all rows of a person. Names that nobody knows before are found with ``find``: see
        :class:`Find`.
        """
        if isinstance(columns, str):
            raise TypeError("columns: give a list of texts")
        if isinstance(columns, Mapping):
            columns = [declared(name, values) for name, values in columns.items()]
        fields = price_fields(epsilon, delta, rho)
        if find is not None:
            fields["find"] = find._message()
        self._calls.call(
            "RegisterDataSet",
            message("RegisterDataSetRequest", name=name, file=file, columns=list(columns), **fields),
            if_lost=f"; it may be registered: see client.dataset({name!r})",
        )
        return DataSet(self._calls, name)

    def dataset(self, name: str) -> DataSet:
        """A data set that is registered."""
        found = DataSet(self._calls, name)
        found._described()
        return found

    def datasets(self) -> list[DataSet]:
        """All data sets that are registered."""
        return [DataSet(self._calls, one.name) for one in _all(self._calls)]

    def session(self, name: str) -> Session:
        """A session that was opened before."""
        return Session(self._calls, name)


def _all(calls: Calls) -> Iterable[Any]:
    token = ""
    while True:
        page = calls.call("ListDataSets", message("ListDataSetsRequest", page_token=token))
        yield from page.data_sets
        token = page.next_page_token
        if not token:
            return


class DataSet:
    """A data set, and what may be asked about it. Make one by :class:`Client`.

    A price is ``epsilon``, or ``rho`` from a budget of rho, or ``epsilon`` with ``delta``: the largest rho
    that keeps both. ``beta`` is the probability that an answer is off by more than it says. ``where`` are
    conditions on columns, all of which must hold: ``{"city": ["Bonn", "Ulm"], "age": between(30, 39)}``.
    ``question_id`` repeats a question whose answer was lost, at no further price: see :class:`QueryError`.
    """

    def __init__(self, calls: Calls, name: str) -> None:
        self._calls = calls
        self.name = name

    def __repr__(self) -> str:
        return f"<DataSet {self.name}>"

    def _described(self) -> Any:
        for one in _all(self._calls):
            if one.name == self.name:
                return one
        raise QueryError(f"there is no data set {self.name!r}; client.datasets() has all", "NOT_FOUND")

    @property
    def columns(self) -> list[str]:
        """The columns and their values, as they were registered."""
        return list(self._described().columns)

    @property
    def rows(self) -> int:
        """The number of rows, which is public. If a column says whose they are: the number of people, times
        :attr:`rows_of_each_person`."""
        return int(self._described().rows)

    @property
    def rows_of_each_person(self) -> int:
        """The most rows that are kept of each person; 0: rows are nobody's."""
        return int(self._described().rows_of_each_person)

    @property
    def budget(self) -> Budget:
        """The budget, and what was spent of it."""
        one = self._described()
        measure = "epsilon" if one.measure == 1 else "rho"
        return Budget(measure, one.budget_nanos / NANOS, one.spent_nanos / NANOS)

    def count(self, where: Where = None, **price: Any) -> Number:
        """The number of rows that meet the conditions."""
        return self.counts([where], **price)[0]

    def counts(self, wheres: Iterable[Where], **price: Any) -> list[Number]:
        """The number of rows that meet each of several conditions, for one price.

        The noise follows the most counts that one row can change: for bins that do not overlap, it does not
        grow with their number.
        """
        if isinstance(wheres, (str, Mapping)) or not isinstance(wheres, Iterable):
            raise TypeError(f"wheres: give a list of conditions, such as [{wheres!r}]; count takes one")
        predicates = [predicate(where) or "*" for where in wheres]
        return self._numbers(len(predicates), price, counts=message("Counts", predicates=predicates))

    def histogram(self, *columns: str, where: Where = None, **price: Any) -> Histogram:
        """The number of rows with each combination of values of these columns."""
        asked = message("Histogram", columns=columns, predicate=predicate(where))
        # Before it is paid. The combinations are made of them afterwards, as the server refuses too many.
        values = [self._column(column).values() for column in columns]

        def read(answer: Any) -> Histogram:
            return Histogram(tuple(columns), tuple(zip(product(*values), _numbers(answer), strict=True)))

        return self._ask(read, price, histogram=asked)

    def sum(self, column: str, *, squares: bool = False, where: Where = None, **price: Any) -> Number:
        """The sum of a column of numbers, or of their squares."""
        term = message("Term", column=column, squared=squares)
        sums = message("Sums", terms=[term], predicate=predicate(where))
        return self._numbers(1, price, sums=sums)[0]

    def mean(self, column: str, *, where: Where = None, **price: Any) -> Number:
        """The mean of a column of numbers."""
        mean, _ = self._moments(column, where, False, price)
        return mean

    def variance(self, column: str, *, where: Where = None, **price: Any) -> Number:
        """The variance of a column of numbers: the mean square of the distances from the mean."""
        _, variance = self._moments(column, where, True, price)
        return variance

    def _moments(
        self, column: str, where: Where, variance: bool, price: Mapping[str, Any]
    ) -> tuple[Number, Number]:
        asked = message("Mean", column=column, predicate=predicate(where), variance=variance)

        def read(answer: Any) -> tuple[Number, Number]:
            found = _answered(answer, "moments")

            def number(what: str) -> Number:
                one = getattr(found, what)
                return Number(one.value, one.low, one.high, f"{what} of {found.label}")

            return number("mean"), number("variance")

        return self._ask(read, price, mean=asked)

    def quantile(
        self,
        column: str,
        share: float,
        *,
        where: Where = None,
        noisy_max: bool = False,
        interval: bool = False,
        **price: Any,
    ) -> Choice:
        """A value near the one that this share of the rows is at or below. ``share=0.5``: the median.

        ``interval=True`` also tells values between which the true one is. They take two thirds of the price.
        """
        aim = {"quantile": number("share", share), "interval": interval}
        return self._choice(column, aim, where, noisy_max, price)

    def most_common(
        self, column: str, *, where: Where = None, noisy_max: bool = False, **price: Any
    ) -> Choice:
        """A value that about as many rows have as have the most common one."""
        aim = {"most_common": message("MostCommon")}
        return self._choice(column, aim, where, noisy_max, price)

    def _choice(
        self,
        column: str,
        aim: Mapping[str, Any],
        where: Where,
        noisy_max: bool,
        price: Mapping[str, Any],
    ) -> Choice:
        chooser = 2 if noisy_max else 1
        asked = message("Choice", column=column, chooser=chooser, predicate=predicate(where), **aim)

        def read(answer: Any) -> Choice:
            value = _answered(answer, "value")
            if not value.HasField("interval"):
                return Choice(value.value, value.shortfall)
            return Choice(value.value, value.shortfall, value.interval.low, value.interval.high)

        return self._ask(read, price, choice=asked)

    def synthetic_table(
        self, rows: int, *, columns: Sequence[str] = (), ways: int = 2, **price: Any
    ) -> Table:
        """A table of rows that belong to nobody, whose pairs of columns are as in the data.

        It is paid with rho. You may ask anything about it at no further price.
        """
        if ways < 1:
            # The server would take 0 for one that was not given.
            raise ValueError(f"ways is {ways}; it must be 1 to 3")
        names = _listed(columns)
        asked = message("SyntheticTable", columns=names, ways=ways, rows=rows)
        # The answer has these columns, and is paid for when they are read.
        for text in self.columns:
            if not names or name_of(text) in names:
                Column(text)
        return self._ask(_table, price, synthetic_table=asked)

    def session(
        self,
        name: str,
        *,
        queries: int,
        columns: Sequence[str] = (),
        epsilon: float | None = None,
        delta: float | None = None,
        rho: float | None = None,
        beta: float = BETA,
    ) -> Session:
        """Opens a session that answers so many counts for one price. It outlives this program."""
        fields = price_fields(epsilon, delta, rho)
        promise = message("SessionPromise", queries=queries, beta=probability("beta", beta))
        request = message(
            "OpenSessionRequest",
            session=name,
            data_set=self.name,
            columns=_listed(columns),
            promise=promise,
            **fields,
        )
        if_lost = f"; it may be open and paid for: see client.session({name!r}) before you open another one"
        opened = self._calls.call("OpenSession", request, if_lost)
        return Session(self._calls, name, opened.accuracy)

    def debits(self, limit: int = 100) -> list[Debit]:
        """What was taken from the budget, the newest first. An analyst sees what it took itself."""
        if limit < 1:
            # The server would take 0 for one that was not given.
            raise ValueError(f"limit is {limit}; it must be at least 1")
        request = message("ListDebitsRequest", data_set=self.name, limit=limit)
        return [
            Debit(one.number, one.unix_seconds, one.caller, one.purpose, one.price_nanos / NANOS)
            for one in self._calls.call("ListDebits", request).debits
        ]

    def withdraw(self) -> None:
        """Ends the data set for good, with what is left of its budget."""
        self._calls.call("WithdrawDataSet", message("WithdrawDataSetRequest", name=self.name))

    def _column(self, name: str) -> Column:
        for text in self.columns:
            if name_of(text) == name:
                return Column(text)
        raise QueryError(f"there is no column {name!r} in {self.name!r}", "INVALID_ARGUMENT")

    def _ask(self, read: Callable[[Any], Read], price: Mapping[str, Any], **question: Any) -> Read:
        known = {"epsilon", "delta", "rho", "beta", "question_id"}
        if unknown := set(price) - known:
            raise TypeError(f"unknown: {', '.join(sorted(unknown))}; a price has {', '.join(sorted(known))}")
        fields = price_fields(*(price.get(name) for name in ("epsilon", "delta", "rho")))
        beta = price.get("beta")
        beta = BETA if beta is None else probability("beta", beta)
        request = message("AskRequest", data_set=self.name, beta=beta, **fields, **question)
        return self._calls.ask("Ask", request, price.get("question_id"), read)

    def _numbers(self, expected: int, price: Mapping[str, Any], **question: Any) -> list[Number]:
        def read(answer: Any) -> list[Number]:
            numbers = _numbers(answer)
            if len(numbers) != expected:
                raise ValueError(f"{len(numbers)} numbers instead of {expected}")
            return numbers

        return self._ask(read, price, **question)


def _listed(columns: Sequence[str]) -> list[str]:
    """Names of columns. A text would be taken for a list of its characters."""
    if isinstance(columns, str):
        raise TypeError(f"columns: give a list, such as [{columns!r}]")
    return list(columns)


def _answered(answer: Any, kind: str) -> Any:
    """The answer of this kind; one of another kind is an error, and not an empty one."""
    if answer.WhichOneof("answer") != kind:
        raise ValueError(f"{answer.WhichOneof('answer')} instead of {kind}")
    return getattr(answer, kind)


def _numbers(answer: Any) -> list[Number]:
    numbers = _answered(answer, "numbers")

    def number(one: Any) -> Number:
        unit = 10**one.decimals
        # Older servers say one accuracy for all.
        value, accuracy = one.value, int(one.accuracy if one.HasField("accuracy") else numbers.accuracy)
        if unit == 1:
            return Number(value, value - accuracy, value + accuracy, one.label)
        return Number(value / unit, (value - accuracy) / unit, (value + accuracy) / unit, one.label)

    return [number(one) for one in numbers.numbers]


def _table(answer: Any) -> Table:
    table = _answered(answer, "table")
    made: dict[str, list[Any]] = {}
    for text, codes in zip(table.columns, table.values, strict=True):
        column = Column(text)
        made[column.name] = column.of_codes(codes.codes)

    def share(found: Any) -> Number:
        return Number(found.value, found.value - found.accuracy, found.value + found.accuracy)

    return Table(made, share(table.largest), share(table.mean))


class Session:
    """A session of a data set: it answers counts at no further price.

    ``with`` ends nothing at the server: open the session again by :meth:`Client.session`.
    """

    def __init__(self, calls: Calls, name: str, accuracy: float | None = None) -> None:
        self._calls = calls
        self.name = name
        self.accuracy = accuracy
        """By how many rows no answer is off, with the probability that was asked for. Of a session that was
        opened before, the first answer says it; ``None`` until then."""

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __repr__(self) -> str:
        return f"<Session {self.name}>"

    def count(self, where: Where = None, *, question_id: str | None = None) -> float:
        """The number of rows that meet the conditions, about."""
        asked = message("AskSessionRequest", session=self.name, predicate=predicate(where) or "*")
        told = self._calls.ask("AskSession", asked, question_id, lambda answer: answer)
        self.accuracy = told.accuracy or self.accuracy
        return float(told.answer)
