"""What an app gives, in the type that the client takes; whatever else is refused by its name."""

from __future__ import annotations

import contextlib
import operator
import os
from typing import (
    Any,
    Callable,
    List,
    Mapping,
    Optional,
    Sequence,
    SupportsFloat,
    SupportsIndex,
    Tuple,
    TypeVar,
)

Checked = TypeVar("Checked")

# Above the largest whole number of a setting.
_WHOLE_END = 1 << 32


def real(value: object) -> float:
    """The number that ``value`` is. What a text or bytes spell is none, though ``float`` reads it.

    Raises whatever the value does.
    """
    # Texts of numpy have `__float__` too.
    if isinstance(value, (str, bytes)) or not isinstance(value, (SupportsFloat, SupportsIndex)):
        raise TypeError("no number")
    return float(value)


def number(value: object, what: str) -> float:
    with contextlib.suppress(Exception):
        return real(value)
    raise ValueError(f"{what} is {value!r}; give a number")


def whole(value: Any, what: str) -> int:
    with contextlib.suppress(Exception):
        index = operator.index(value)
        if 0 <= index < _WHOLE_END:
            return index
    raise ValueError(f"{what} is {value!r}; give a whole number from 0 to {_WHOLE_END - 1}")


def flag(value: object, what: str) -> bool:
    # The text "no" would be true.
    if not isinstance(value, bool):
        raise ValueError(f"{what} is {value!r}; give True or False")
    return value


def text(value: object, what: str) -> str:
    if not isinstance(value, str) or value.encode("utf-8", "replace").decode() != value:
        raise ValueError(f"{what}: {value!r} is no text of whole characters")
    return value


def path(value: object, what: str) -> str:
    return text(os.fspath(value) if isinstance(value, os.PathLike) else value, what)


def texts(values: object, what: str) -> List[str]:
    # A text is a sequence of its letters, and an empty one would be an empty list.
    if isinstance(values, (str, bytes)) or not isinstance(values, Sequence):
        raise ValueError(f"{what} are {values!r}; give a list")
    return [text(value, what) for value in values]


def entries(mapping: object, what: str) -> List[Tuple[str, Any]]:
    if not isinstance(mapping, Mapping):
        raise ValueError(f"{what} are {mapping!r}; give a dict")
    return [(text(name, what), value) for name, value in mapping.items()]


def given(check: Callable[[Any, str], Checked], value: object, what: str) -> Optional[Checked]:
    """What ``check`` makes of a setting that may be ``None``."""
    return None if value is None else check(value, what)
