"""Prices and probabilities, checked before anything is asked."""

from __future__ import annotations

import math
from decimal import Decimal
from numbers import Real
from typing import Any

from ._calls import message


def number(name: str, value: object) -> float:
    """A number. The messages would take ``True`` for 1."""
    if isinstance(value, bool) or not isinstance(value, (Real, Decimal)):
        raise TypeError(f"{name} is {value!r}; give a number")
    return float(value)


def probability(name: str, value: object) -> float:
    """A number between 0 and 1. The server would take 0 for one that was not given."""
    found = number(name, value)
    if not 0 < found < 1:
        raise ValueError(f"{name} is {value}; it must be a number above 0 and below 1")
    return found


def _loss(name: str, value: object) -> float:
    found = number(name, value)
    # What is the least and the most, the server says.
    if not 0 < found < math.inf:
        raise ValueError(f"{name} is {value}; it must be a number above 0")
    return found


def price_fields(epsilon: object, delta: object, rho: object) -> dict[str, Any]:
    """The fields of a price or a budget."""
    if rho is not None and epsilon is None and delta is None:
        return {"rho": _loss("rho", rho)}
    if epsilon is not None and rho is None:
        loss = _loss("epsilon", epsilon)
        if delta is None:
            return {"epsilon": loss}
        return {"approximate": message("ApproximateBudget", epsilon=loss, delta=probability("delta", delta))}
    raise TypeError("give epsilon=..., or epsilon=... and delta=..., or rho=...")
