"""Columns and their values as text, read by the server's own rules."""

from __future__ import annotations

import re
from typing import Any, Iterable, Iterator, Sequence

from ._predicates import RESERVED, written

_NUMBER = r"([+-]?[0-9]*(?:\.[0-9]+)?)"
_RANGE = re.compile(rf"{_NUMBER}\.\.{_NUMBER}(?::{_NUMBER})?!?(?:\?{_NUMBER})?")


class Column:
    """A column, as the server writes it. Text that declares no column is a ``ValueError``."""

    def __init__(self, text: str) -> None:
        self.name, values = _halves(text)
        self.decimals = 0
        self._names: list[str] = []
        self._codes = range(0)
        if values is None:
            # It says whose row it is.
            return
        if found := _RANGE.fullmatch(values):
            parts = [part for part in found.groups() if part is not None]
            has_fractions = any("." in part for part in parts)
            if all(any(map(str.isdigit, part)) for part in parts) and (found[3] or not has_fractions):
                self._read_numbers(found, parts)
                return
        # As `other*`: the last name stands for every other one.
        is_open = values.endswith("*") and not values.endswith("|*")
        self._names = [_name(part) for part in _parts(values.removesuffix("*") if is_open else values, "|")]

    def _read_numbers(self, found: re.Match[str], parts: Sequence[str]) -> None:
        self.decimals = max(len(part.partition(".")[2]) for part in parts)
        # In whole units of the last decimal: floating point would not be exact.
        low, high, step = (self._whole(found[place] or "1") for place in (1, 2, 3))
        if step <= 0 or low > high:
            raise ValueError(f"{self.name!r} has no numbers: {found[0]}")
        self._codes = range(low, high + 1, step)

    def _whole(self, text: str) -> int:
        whole, _, fraction = text.partition(".")
        return int(whole + fraction.ljust(self.decimals, "0"))

    @property
    def is_numbers(self) -> bool:
        """Whether it has numbers."""
        return bool(self._codes)

    @property
    def unit(self) -> int:
        """How many units of the last decimal are 1."""
        return int(10**self.decimals)

    def values(self) -> list[str]:
        """All values, as text."""
        return [self._text(units) for units in self._codes] if self.is_numbers else self._names

    def of_codes(self, codes: Iterable[int]) -> list[Any]:
        """The values with these indices."""
        if not self.is_numbers:
            return [self._names[code] for code in codes]
        kind = float if self.decimals else int
        return [kind(self._text(self._codes[code])) for code in codes]

    def _text(self, units: int) -> str:
        if not self.decimals:
            return str(units)
        whole, rest = divmod(abs(units), self.unit)
        return f"{'-' if units < 0 else ''}{whole}.{rest:0{self.decimals}d}"


def name_of(text: str) -> str | None:
    """The name of a column that can be asked about. ``None``: it says whose row it is."""
    name, values = _halves(text)
    return None if values is None else name


def declared(name: str, values: str | Sequence[str]) -> str:
    """A column and its values as the server reads them."""
    if isinstance(values, str):
        return written(name) + (values if values.startswith("@") else f":{values}")
    return f"{written(name)}:{'|'.join(written(value) for value in values)}"


def _halves(text: str) -> tuple[str, str | None]:
    """The name and the values; ``None``: it says whose row it is."""
    name = next(_parts(text, ":"))
    if len(name) < len(text):
        return _name(name), text[len(name) + 1 :]
    name, at, _ = text.rpartition("@")
    if not at:
        raise ValueError(f"{text!r} is no column")
    return _name(name), None


def _parts(text: str, separator: str) -> Iterator[str]:
    """The parts between separators outside of quotes. A quote begins a name, or is a part of it."""
    start, in_quotes, begins = 0, False, True
    for at, sign in enumerate(text):
        if sign == '"' and (in_quotes or begins):
            in_quotes = not in_quotes
            # The next one may be the second of two.
            begins = not in_quotes
        else:
            begins = not in_quotes and (sign in RESERVED or begins and sign.isspace())
        if sign == separator and not in_quotes:
            yield text[start:at]
            start = at + 1
    yield text[start:]


def _name(part: str) -> str:
    """The name that a part gives. In quotes it may have any character."""
    inner = part[1:-1] if part.startswith('"') else part
    if part.startswith('"'):
        is_name = len(part) > 1 and part.endswith('"') and '"' not in inner.replace('""', "")
        inner = inner.replace('""', '"')
    else:
        is_name = not RESERVED & set(part)
    if not is_name or not inner:
        raise ValueError(f"{part!r} is no name")
    return inner
