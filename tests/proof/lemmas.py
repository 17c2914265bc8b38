"""Facts about products of integers, for terms in which products are not defined.

To a solver of bit-vectors a product of two unknown numbers of 64 bits is a large circuit. So the terms leave
it undefined (`PRODUCT`, `WRAPPED`), and proofs use the facts of this file. Each is one formula. It is proved
for all integers, with the product in it, and then used for bit-vectors with the undefined term in the place
of the product. The bit-vectors are so wide that nothing in the formula overflows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import z3
from execute import OVERFLOWS, PRODUCT, QUOTIENT, WRAPPED

ONE = 1 << 53
WORD = 1 << 64
# Bits of the numbers in which a fact is used: no sum in it comes near.
ROOM = 200


@dataclass(frozen=True)
class Lemma:
    """A fact: `holds` of its numbers, of which the products are the last."""

    name: str
    names: str
    products: Callable[..., list[Any]]
    holds: Callable[..., Any]

    def prove(self) -> None:
        """Proves it for integers."""
        numbers = z3.Ints(self.names)
        solver = z3.Solver()
        solver.set("timeout", 20_000)
        solver.add(z3.Not(self.holds(*numbers, *self.products(*numbers))))
        if solver.check() != z3.unsat:
            raise AssertionError(f"the lemma {self.name!r} is not proved: {solver.check()}")


def implies(premises: list[Any], *conclusions: Any) -> Any:
    return z3.Implies(z3.And(*premises), z3.And(*conclusions))


BOUND = Lemma(
    "a product of a number up to 2^53 and a word",
    "a b",
    lambda a, b: [a * b],
    lambda a, b, p: implies([a >= 0, a <= ONE, b >= 0, b < WORD], p >= 0, p <= ONE * (WORD - 1)),
)
ENDS = Lemma(
    "a product with 0, with 2^53, and in between",
    "a b",
    lambda a, b: [a * b],
    lambda a, b, p: implies(
        [a >= 0, a <= ONE, b >= 0],
        z3.Implies(a == 0, p == 0),
        z3.Implies(a == ONE, p == ONE * b),
        p <= ONE * b,
        p >= 0,
    ),
)
# Bits of a factor, of which the other is a word.
SIZES = (53, 58, 63, 64)
WORDS = Lemma(
    "a product of two words, of which one may be short",
    "a b",
    lambda a, b: [a * b],
    lambda a, b, p: implies(
        [a >= 0, b >= 0, b < WORD],
        p >= 0,
        *(z3.Implies(a < 1 << size, p <= ((1 << size) - 1) * (WORD - 1)) for size in SIZES),
    ),
)
DIVISION = Lemma(
    "a quotient, rounded down, and its product with the divisor",
    "a n",
    lambda a, n: [a / n, n * (a / n)],
    lambda a, n, q, p: implies([a >= 0, n >= 1], p <= a, a < p + n),
)
SHARE = Lemma(
    "a quotient by 2 or more is at most a half",
    "a n",
    lambda a, n: [a / n],
    lambda a, n, q: implies([a >= 0, n >= 2], q >= 0, 2 * q <= a),
)
ORDER = Lemma(
    "the larger factor has the larger product",
    "a b c",
    lambda a, b, c: [a * c, b * c],
    lambda a, b, c, p, q: implies([a >= 0, a < b, c >= 0], p + c <= q),
)
MIRROR = Lemma(
    "products of a number and its complement add up",
    "a b c",
    lambda a, b, c: [a * c, b * c],
    lambda a, b, c, p, q: z3.Implies(a + b == ONE, p + q == ONE * c),
)
BEND = Lemma(
    "what a quadratic curve subtracts stays in the range",
    "r u",
    lambda r, u: [r * (ONE - r), u * (r * (ONE - r))],
    lambda r, u, p, q: implies(
        [r >= 0, r <= ONE, u >= -(1 << 20), u <= 1 << 20],
        p >= 0,
        p < 1 << 127,
        q >= -(1 << 73) * (ONE - r),
        q >= -(1 << 73) * r,
        q <= (1 << 73) * r,
        q <= (1 << 73) * (ONE - r),
        q >= -(1 << 126),
        q <= 1 << 126,
    ),
)
SLOPE = Lemma(
    "what a quadratic curve subtracts grows by less than the reward",
    "r s u",
    lambda r, s, u: [u * (r * (ONE - r)), u * (s * (ONE - s))],
    lambda r, s, u, p, q: implies(
        [r >= 0, r <= s, s <= ONE, u >= -(1 << 20), u <= 1 << 20], q - p <= (1 << 73) * (s - r)
    ),
)
FLOOR = Lemma(
    "numbers rounded down to multiples of 2^73 are no further apart",
    "p q d",
    lambda p, q, d: [p / (1 << 73), q / (1 << 73)],
    lambda p, q, d, below_p, below_q: implies([q - p <= (1 << 73) * d], below_q - below_p <= d),
)
LEMMAS = (BOUND, ENDS, WORDS, DIVISION, SHARE, ORDER, MIRROR, BEND, SLOPE, FLOOR)


def wide(bits: z3.BitVecRef, is_signed: bool = False) -> z3.BitVecRef:
    """The same number in many bits."""
    extend = z3.SignExt if is_signed else z3.ZeroExt
    return extend(ROOM - bits.size(), bits)


def applications(function: z3.FuncDeclRef, formulas: Iterable[z3.ExprRef]) -> list[z3.BitVecRef]:
    """All uses of a function in formulas."""
    seen: set[int] = set()
    found: list[z3.BitVecRef] = []
    waiting = list(formulas)
    while waiting:
        term = waiting.pop()
        if term.get_id() in seen:
            continue
        seen.add(term.get_id())
        if z3.is_app(term) and term.decl().eq(function):
            found.append(term)
        waiting.extend(term.children())
    return found


def of_products(formulas: list[z3.ExprRef]) -> list[z3.BoolRef]:
    """What the lemmas say of the products and quotients in formulas."""
    found = applications(PRODUCT, formulas)
    facts: list[z3.BoolRef] = []
    for quotient in applications(QUOTIENT, formulas):
        a, n = quotient.children()
        facts.append(SHARE.holds(wide(a), wide(n), wide(quotient)))
    factors = []
    for product in found:
        a, b = product.children()
        facts.append(product == PRODUCT(b, a))
        for one, other in ((a, b), (b, a)):
            # Factors are words: the executor gives `PRODUCT` no others, and the fact says so again.
            numbers = (wide(one), wide(other), wide(product))
            facts += [BOUND.holds(*numbers), ENDS.holds(*numbers), WORDS.holds(*numbers)]
            factors.append((one, other, product))
    for (a, c, p), (b, d, q) in combinations(factors, 2):
        if p.eq(q):
            continue
        same = c == d
        for first, second in (((a, p), (b, q)), ((b, q), (a, p))):
            (x, xp), (y, yq) = first, second
            ordered = ORDER.holds(wide(x), wide(y), wide(c), wide(xp), wide(yq))
            facts.append(z3.Implies(same, ordered))
        facts.append(z3.Implies(same, MIRROR.holds(wide(a), wide(b), wide(c), wide(p), wide(q))))
    return facts


def proved_equal(a: z3.BitVecRef, b: z3.BitVecRef, hypotheses: list[z3.BoolRef]) -> bool:
    solver = z3.Solver()
    solver.set("timeout", 5_000)
    solver.add(*hypotheses, a != b)
    return bool(solver.check() == z3.unsat)


def bend_of(
    formulas: list[z3.ExprRef], level: z3.BitVecRef, units: z3.BitVecRef, hypotheses: list[z3.BoolRef]
) -> tuple[z3.BitVecRef, list[z3.BoolRef]] | None:
    """The term for `units level (2^53 - level)` in formulas, if there is one.

    And what BEND says of it, and of the product in it: its size, and that neither is beyond 128 bits.
    """
    r = z3.ZeroExt(64, level)
    u = z3.SignExt(128 - units.size(), units)
    for outer in applications(WRAPPED, formulas):
        for inner, factor in (outer.children(), reversed(outer.children())):
            if not inner.decl().eq(WRAPPED) or not proved_equal(factor, u, hypotheses):
                continue
            for one, other in (inner.children(), reversed(inner.children())):
                if proved_equal(one, r, hypotheses) and proved_equal(other, ONE - r, hypotheses):
                    numbers = (wide(level), wide(units, True), wide(inner, True), wide(outer, True))
                    fits = [z3.Not(OVERFLOWS(*product.children())) for product in (inner, outer)]
                    return outer, [BEND.holds(*numbers), z3.Implies(z3.And(*hypotheses), z3.And(*fits))]
    return None
