"""Conditions on rows, as text."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Set
from decimal import Decimal
from numbers import Integral, Rational, Real
from typing import SupportsFloat, Union

# Texts and numbers, also those of numpy, decimal and fractions.
Value = Union[str, SupportsFloat]

# Conditions on columns, all of which must hold; text is taken as it is.
Where = Union[str, Mapping[str, Union[Value, range, "Between", Iterable[Value]]], None]

RESERVED = set("=,|:*")


class Between:
    """The numbers from ``low`` to ``high``, both included."""

    def __init__(self, low: SupportsFloat, high: SupportsFloat) -> None:
        self.low, self.high = low, high

    def __repr__(self) -> str:
        return f"between({self.low!r}, {self.high!r})"


def between(low: SupportsFloat, high: SupportsFloat) -> Between:
    """The numbers from ``low`` to ``high``, both included, as a condition on a column.

    >>> predicate({"age": between(30, 39)})
    'age=30..39'
    """
    return Between(low, high)


def written(name: str) -> str:
    """A name as the server reads it, in quotes where they are needed."""
    is_plain = not RESERVED & set(name) and not name.startswith('"') and name.strip() == name
    return name if is_plain and ".." not in name else '"' + name.replace('"', '""') + '"'


def _number(value: object) -> str | None:
    """A number as the server reads it, with all of its digits. ``None``: it is no number."""
    if isinstance(value, bool):
        return None
    if isinstance(value, Integral):
        try:
            return str(operator.index(value))
        except TypeError:
            # As numpy's differences of times, which have units.
            return None
    if isinstance(value, Rational):
        is_whole = value.denominator == 1
        return str(int(value.numerator)) if is_whole else str(float(value))
    # Not by way of float(): a 0.1 of 32 bits would be 0.10000000149, which may be beyond a range.
    return str(value) if isinstance(value, (Real, Decimal)) else None


def _value(value: object) -> str:
    if isinstance(value, bool):
        raise TypeError(f"{value} is no value: write what the column has, such as 'yes'")
    if isinstance(value, str):
        return written(value)
    text = _number(value)
    if text is None:
        raise TypeError(f"{value!r} is no value: give a number or a text")
    return text


def _range(values: Between) -> str:
    low, high = _number(values.low), _number(values.high)
    if low is None or high is None:
        raise TypeError(f"{values!r}: give two numbers")
    # The server reads NaN as a missing value, which is no end.
    if "nan" in low.lower() + high.lower():
        raise ValueError(f"{values!r}: give two numbers")
    return f"{low}..{high}"


def _values(values: object) -> str:
    if isinstance(values, Between):
        return _range(values)
    if isinstance(values, range):
        if values.step != 1 or not values:
            raise ValueError(f"{values} has no values, or leaves some out; give a range in steps of 1")
        return f"{values[0]}..{values[-1]}"
    # What is one value, or would give its bytes or keys. An array of no dimension is iterable by name only.
    is_one = isinstance(values, (str, bytes, bytearray, memoryview, Mapping)) or getattr(values, "ndim", 1) == 0
    if is_one or not isinstance(values, Iterable):
        return _value(values)
    parts = [_value(value) for value in values]
    if not parts:
        raise ValueError("a condition has no values, so no row can meet it")
    # The same question has the same text, since the server knows it by that.
    return "|".join(sorted(parts) if isinstance(values, Set) else parts)


def predicate(where: Where) -> str:
    """Conditions as the text that the server takes; no conditions are an empty text.

    >>> predicate({"age": range(30, 40), "city": ["Bonn", "Ulm"], "income": "<=50K"})
    'age=30..39,city=Bonn|Ulm,income="<=50K"'
    >>> predicate("age=30..39")
    'age=30..39'
    """
    if where is None:
        return ""
    if isinstance(where, str):
        return where
    if not isinstance(where, Mapping):
        raise TypeError(f"where: give conditions such as {{'age': between(30, 39)}}, and not {where!r}")
    return ",".join(f"{written(column)}={_values(values)}" for column, values in where.items())
