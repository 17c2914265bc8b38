"""Conditions on rows, as text."""

from __future__ import annotations

from typing import Iterable, Mapping, Union

Value = Union[str, int, float]

# Conditions on columns, all of which must hold; text is taken as it is.
Where = Union[str, Mapping[str, Union[Value, range, "Between", Iterable[Value]]], None]

RESERVED = set("=,|:*")


class Between:
    """The numbers from ``low`` to ``high``, both included."""

    def __init__(self, low: int | float, high: int | float) -> None:
        self.low, self.high = low, high

    def __repr__(self) -> str:
        return f"between({self.low}, {self.high})"


def between(low: int | float, high: int | float) -> Between:
    """The numbers from ``low`` to ``high``, both included, as a condition on a column.

    >>> predicate({"age": between(30, 39)})
    'age=30..39'
    """
    return Between(low, high)


def written(name: str) -> str:
    """A name as the server reads it, in quotes where they are needed."""
    is_plain = not RESERVED & set(name) and not name.startswith('"') and name.strip() == name
    return name if is_plain and ".." not in name else '"' + name.replace('"', '""') + '"'


def _value(value: object) -> str:
    if isinstance(value, bool):
        raise TypeError(f"{value} is no value: write what the column has, such as 'yes'")
    if isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, str):
        return written(value)
    raise TypeError(f"{value!r} is no value: give a number or a text")


def _values(values: object) -> str:
    if isinstance(values, Between):
        return f"{values.low}..{values.high}"
    if isinstance(values, range):
        if values.step != 1 or not values:
            raise ValueError(f"{values} has no values, or leaves some out; give a range in steps of 1")
        return f"{values[0]}..{values[-1]}"
    if isinstance(values, (list, tuple, set, frozenset)):
        parts = [_value(value) for value in values]
        if not parts:
            raise ValueError("a condition has no values, so no row can meet it")
        return "|".join(sorted(parts) if isinstance(values, (set, frozenset)) else parts)
    return _value(values)


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
    return ",".join(f"{written(column)}={_values(values)}" for column, values in where.items())
