"""Answers with noise, and what they are worth."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas
    import polars


@dataclass(frozen=True)
class Number:
    """A number with noise. With the probability that was asked for, it lies from ``low`` to ``high``."""

    value: float
    low: float
    high: float
    label: str = ""

    def __float__(self) -> float:
        return float(self.value)

    def __repr__(self) -> str:
        return f"{_text(self.value)} ({_text(self.low)} to {_text(self.high)})"


def _text(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else f"{value:.6g}"


@dataclass(frozen=True)
class Choice:
    """A value that was chosen. At most ``shortfall`` rows worse than the best one.

    If an interval of a quantile was asked for, the true one is from ``low`` to ``high``.
    """

    value: str
    shortfall: int
    low: str | None = None
    high: str | None = None


@dataclass(frozen=True)
class Histogram:
    """How many rows each combination of values has, in the order of the columns' values."""

    columns: tuple[str, ...]
    cells: tuple[tuple[tuple[str, ...], Number], ...]

    def __getitem__(self, values: str | tuple[str, ...]) -> Number:
        wanted = (values,) if isinstance(values, str) else tuple(str(value) for value in values)
        for cell, number in self.cells:
            if cell == wanted:
                return number
        raise KeyError(values)

    def records(self) -> list[dict[str, Any]]:
        """The cells, each with its values, ``rows``, ``low`` and ``high``."""
        return [
            dict(zip(self.columns, cell)) | {"rows": number.value, "low": number.low, "high": number.high}
            for cell, number in self.cells
        ]

    def to_pandas(self) -> pandas.DataFrame:
        """The cells as a frame of pandas."""
        import pandas

        return pandas.DataFrame(self.records())

    def to_polars(self) -> polars.DataFrame:
        """The cells as a frame of polars."""
        import polars

        return polars.DataFrame(self.records())


@dataclass(frozen=True)
class Table:
    """A synthetic table: its rows belong to nobody. The errors are shares of the rows, with noise."""

    columns: dict[str, list[Any]] = field(repr=False)
    worst: Number
    mean: Number

    def to_pandas(self) -> pandas.DataFrame:
        """The rows as a frame of pandas."""
        import pandas

        return pandas.DataFrame(self.columns)

    def to_polars(self) -> polars.DataFrame:
        """The rows as a frame of polars."""
        import polars

        return polars.DataFrame(self.columns)


@dataclass(frozen=True)
class Budget:
    """All that may ever be spent on a data set, in ``measure``: ``"epsilon"`` or ``"rho"``."""

    measure: str
    total: float
    spent: float

    @property
    def left(self) -> float:
        """What is left of it."""
        return round(self.total - self.spent, 9)

    def _repr_html_(self) -> str:
        return (
            f'<progress max="{self.total}" value="{self.spent}"></progress> '
            f"{self.spent:g} of {self.measure} {self.total:g} spent, {self.left:g} left"
        )
