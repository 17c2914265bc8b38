"""The theorems about the privacy kernel: what must hold of its functions, for every input.

A theorem has hypotheses and a claim. It is proved if no input meets the hypotheses and breaks the claim. That
some input meets the hypotheses is checked too, since nothing at all would prove much.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import lemmas
import z3
from execute import GROWTH_BELOW, QUOTIENT, SERIES_STEP, Outcome, execute, is_nan, leading_zeros, multiply, order_key
from ir import Module

ONE = 1 << 53
# Bits in which no number of a theorem overflows: the largest is below 2^192.
WIDE = 200
ALPHABETS = range(2, 17)
# The bits of 1, and of the least and the largest ε: 2^-20 and 32.
UNIT = 0x3FF0_0000_0000_0000
EPSILONS = (0x3EB0_0000_0000_0000, 0x4040_0000_0000_0000)
# Where the series for e^ε - 1 begins.
STEPS = 100
# What a draw gives if there is no word: bit 16, and the number of words taken in bits 8 to 15.
ENDED = 1 << 16
# What a function gives that refuses its input.
REFUSED = 1 << 64


class ShapeError(Exception):
    """The compiled function does not have the parts that its theorems are about."""


@dataclass
class Theorem:
    """A statement about one or several runs."""

    name: str
    hypotheses: list[z3.BoolRef]
    claim: z3.BoolRef
    facts: list[z3.BoolRef] = field(default_factory=list)
    # For integers, where all others are for bit-vectors.
    logic: str = "QF_UFBV"
    is_about_faults: bool = False


Theorems = Iterator[Theorem]


@dataclass
class Kernel:
    """The compiled kernel of one variant."""

    modules: list[Module]

    def run(self, name: str, *arguments: z3.BitVecRef, apart: tuple[str, ...] = ()) -> Outcome:
        return execute(self.modules, f"proof_{name}", list(arguments), apart)


def word(name: str) -> z3.BitVecRef:
    return z3.BitVec(name, 64)


def byte(number: int) -> z3.BitVecRef:
    return z3.BitVecVal(number, 8)


def wide(bits: z3.BitVecRef) -> z3.BitVecRef:
    """The same number where nothing overflows."""
    return z3.ZeroExt(WIDE - bits.size(), bits)


def number(value: int) -> z3.BitVecRef:
    return z3.BitVecVal(value, WIDE)


def joined(high: z3.BitVecRef, low: z3.BitVecRef) -> z3.BitVecRef:
    return z3.Concat(high, low)


def is_floor(floor: z3.BitVecRef, symbols: int = 2) -> z3.BoolRef:
    """`1 <= t` and `k t < 2^64`."""
    return z3.And(floor != 0, z3.ULE(floor, ((1 << 64) - 1) // symbols))


def is_level(level: z3.BitVecRef) -> z3.BoolRef:
    return z3.ULE(level, ONE)


def no_fault(name: str, hypotheses: list[z3.BoolRef], run: Outcome, facts: list[z3.BoolRef] | None = None) -> Theorem:
    """Nothing panics, and nothing is undefined."""
    name = f"{name}: no panic, nothing undefined"
    return Theorem(name, hypotheses, z3.Not(run.broken()), facts or [], is_about_faults=True)


# The bit.


def width_of_floor(kernel: Kernel) -> Theorems:
    floor = word("floor")
    run = kernel.run("floor_width", floor)
    yield no_fault("width", [is_floor(floor)], run)
    claim = wide(run.bits) == number(1 << 64) - 2 * wide(floor)
    yield Theorem("width: it is 2^64 - 2 t", [is_floor(floor)], z3.And(claim, z3.UGE(run.bits, 2)))


def threshold(kernel: Kernel) -> Theorems:
    floor, level, other = word("floor"), word("level"), word("other")
    run = kernel.run("threshold", floor, level)
    yield no_fault("threshold", [], run)
    value = wide(run.bits)
    lowest = wide(floor) << 64
    highest = number(1 << 128) - lowest
    within = z3.And(lowest <= value, value <= highest)
    yield Theorem("threshold: between the floor and its complement, whatever the level", [is_floor(floor)], within)

    valid = [is_floor(floor), is_level(level)]
    width = z3.BitVecVal(0, 64) - 2 * floor
    product, _ = multiply(z3.ZeroExt(64, level), z3.ZeroExt(64, z3.simplify(width)), frozenset())
    # A level that is none: the line is taken modulo 2^64 and clamped, to the nearer end.
    line = floor + z3.Extract(116, 53, product)
    clamped = z3.If(z3.ULT(line, floor), floor, z3.If(z3.UGT(line, -floor), -floor, line))
    rest = z3.If(clamped == -floor, z3.BitVecVal(0, 64), z3.Extract(63, 0, product) << 11)
    whole, fraction = z3.Extract(127, 64, run.bits), z3.Extract(63, 0, run.bits)
    claim = z3.And(whole == clamped, fraction == rest)
    yield Theorem("threshold: the clamp of a line, whatever the level", [is_floor(floor)], claim)

    exact = value == lowest + (wide(product) << 11)
    yield Theorem("threshold: linear without rounding, the clamp does nothing", valid, exact)
    ends = z3.And(z3.Implies(level == 0, value == lowest), z3.Implies(level == ONE, value == highest))
    yield Theorem("threshold: the floor of reward 0, its complement of reward 1", valid, ends)

    # What follows for two rewards follows from the exact form alone. So the two products are any two that
    # the lemmas allow.
    p, q = z3.BitVecs("product.p product.q", 128)
    one, two = (lowest + (wide(of) << 11) for of in (p, q))
    numbers = [lemmas.wide(of) for of in (level, other, width, p, q)]
    both = [*valid, is_level(other)]
    facts = [lemmas.ORDER.holds(*numbers), lemmas.MIRROR.holds(*numbers)]
    yield Theorem(
        "threshold: a higher reward has a higher one", both, z3.Implies(z3.ULT(level, other), one < two), facts
    )
    mirror = z3.Implies(level + other == ONE, one + two == number(1 << 128))
    yield Theorem("threshold: those of r and 1 - r add up to 1", both, mirror, facts)


def bit(kernel: Kernel) -> Theorems:
    whole, fraction, high, low = (word(name) for name in ("whole", "fraction", "high", "low"))
    stock = z3.BitVec("stock", 8)
    run = kernel.run("bit", whole, fraction, high, low)
    yield no_fault("bit", [], run)
    below = z3.ULT(joined(high, low), joined(whole, fraction))
    yield Theorem("bit: 1 if and only if u < T, in 128 bits", [], (run.bits == 1) == below)

    drawn = kernel.run("bit_draw", whole, fraction, high, low, stock)
    yield no_fault("draw", [], drawn)
    needed = z3.If(high == whole, z3.BitVecVal(2, 32), z3.BitVecVal(1, 32))
    enough = z3.UGE(z3.ZeroExt(24, stock), needed)
    symbol = z3.ZeroExt(31, run.bits)
    equal = z3.Implies(enough, drawn.bits == (needed << 8) + symbol)
    yield Theorem("draw: the bit of the same words, and no word more than it needs", [], equal)
    ended = z3.Implies(z3.Not(enough), drawn.bits == ENDED + (z3.ZeroExt(24, stock) << 8))
    yield Theorem("draw: no bit without its words", [], ended)


def report(kernel: Kernel) -> Theorems:
    floor, level, first, second = (word(name) for name in ("floor", "level", "first", "second"))
    stock = z3.BitVec("stock", 8)
    run = kernel.run("bit_report", floor, level, first, second, stock)
    limit = kernel.run("threshold", floor, level)
    yield no_fault("report", [], run)
    whole, fraction = z3.Extract(127, 64, limit.bits), z3.Extract(63, 0, limit.bits)
    drawn = kernel.run("bit_draw", whole, fraction, first, second, stock)
    yield Theorem("report: threshold and draw, inlined together, are the two apart", [], run.bits == drawn.bits)
    below = z3.ULT(joined(first, second), limit.bits)
    claim = z3.Implies(z3.UGE(stock, 2), (z3.Extract(7, 0, run.bits) == 1) == below)
    yield Theorem("report: 1 if and only if u < T", [], claim)


# Levels and curves.


def levels(kernel: Kernel) -> Theorems:
    x, y = word("x"), word("y")
    run, other = kernel.run("level", x), kernel.run("level", y)
    inside = z3.And(z3.Not(is_nan(x)), order_key(x) >= 0, order_key(x) <= UNIT)
    yield no_fault("level", [], run)
    exponent = z3.ZeroExt(128 - 11, z3.Extract(62, 52, x))
    mantissa = z3.ZeroExt(128 - 53, z3.Concat(z3.BitVecVal(1, 1), z3.Extract(51, 0, x)))
    # x is mantissa 2^(exponent - 1075) for normal numbers; of others nothing is left.
    floor = z3.If(exponent == 0, z3.BitVecVal(0, 128), z3.LShR(mantissa << 53, 1075 - exponent))
    claim = run.bits == floor
    yield Theorem("level: a number from 0 to 1 rounded down to units of 2^-53", [inside], claim)
    yield Theorem("level: at most 2^53", [inside], is_level(run.bits))
    yield Theorem("level: any other number is refused", [z3.Not(inside)], run.bits == REFUSED)
    valid = [inside, z3.substitute(inside, (x, y))]
    rising = z3.Implies(order_key(x) <= order_key(y), z3.ULE(run.bits, other.bits))
    yield Theorem("level: of a higher number no lower", valid, rising)

    level = word("level")
    mirrored = kernel.run("level_mirrored", level)
    yield no_fault("mirrored", [is_level(level)], mirrored)
    yield Theorem("mirrored: it is 2^53 - level", [is_level(level)], wide(mirrored.bits) == ONE - wide(level))


def range_level(kernel: Kernel) -> Theorems:
    low, high, reward = word("low"), word("high"), word("reward")
    run = kernel.run("range_level", low, high, reward)
    yield no_fault("level of a reward", [], run)
    is_number = z3.And(*(z3.Not(is_nan(of)) for of in (low, high, reward)))
    inside = z3.And(is_number, order_key(low) <= order_key(reward), order_key(reward) <= order_key(high))
    yield Theorem("level of a reward: refused if and only if it is outside", [], (run.bits != REFUSED) == inside)
    # Whatever floating point computes.
    yield Theorem("level of a reward: at most 2^53, whatever the range", [inside], is_level(run.bits))


def linear(kernel: Kernel) -> Theorems:
    level = word("level")
    run = kernel.run("curve_linear", word("epsilon"), level)
    yield no_fault("linear curve", [is_level(level)], run)
    yield Theorem("linear curve: it is the level", [is_level(level)], run.bits == level)


def exponential(kernel: Kernel) -> Theorems:
    level = word("level")
    run = kernel.run("curve_exponential", word("epsilon"), level)
    valid = [is_level(level)]
    # ε is at most 32, so the powers of two are between 2^-47 and 1. In this build a larger one would panic.
    powers = [z3.ULE(one.result, 1023) for one in run.free if one.what == "fptoui"]
    yield no_fault("exponential curve", [*valid, *powers], run)
    yield Theorem("exponential curve: at most 2^53, whatever floating point computes", valid, is_level(run.bits))


def quadratic(kernel: Kernel) -> Theorems:
    epsilon, level = word("epsilon"), word("level")
    units = z3.BitVec("units", 32)
    run = kernel.run("curve_quadratic", units, epsilon, level)
    admitted = z3.And(units >= -(1 << 20), units <= 1 << 20)
    valid = [is_level(level), admitted]
    found = lemmas.bend_of([run.bits], level, units, valid)
    exact = z3.BoolVal(False)
    facts: list[z3.BoolRef] = []
    if found is not None:
        bend, facts = found
        exact = lemmas.wide(run.bits) == lemmas.wide(level) - (lemmas.wide(bend, is_signed=True) >> 73)
    yield no_fault("quadratic curve", valid, run, facts=facts)
    yield Theorem("quadratic curve: r - floor(k r (1 - r)), exactly", valid, exact, facts)
    yield Theorem("quadratic curve: at most 2^53", valid, is_level(run.bits), facts)
    ends = z3.Implies(z3.Or(level == 0, level == ONE), wide(run.bits) == wide(level))
    yield Theorem("quadratic curve: 0 of 0, and 1 of 1", valid, ends, facts)
    # This follows from the exact form, for any two products that the lemmas allow: in integers.
    r, s, p, q, u = z3.Ints("r s p q u")
    both = [r >= 0, r <= s, s <= ONE, u >= -(1 << 20), u <= 1 << 20]
    floors = p / (1 << 73), q / (1 << 73)
    facts = [lemmas.SLOPE.holds(r, s, u, p, q), lemmas.FLOOR.holds(p, q, s - r, *floors)]
    rising = r - floors[0] <= s - floors[1]
    yield Theorem("quadratic curve: of a higher reward no lower", both, rising, facts, "QF_NIA")
    refused = kernel.run("curve_quadratic", units, epsilon, level).bits == REFUSED
    yield Theorem("quadratic curve: another curvature is refused", [z3.Not(admitted)], refused)


# k symbols.


def channel_of(symbols: int) -> tuple[z3.BitVecRef, z3.BitVecRef]:
    """The two numbers that a k-ary channel is passed as."""
    return word("share"), byte(symbols)


def kary_truth(kernel: Kernel, k: int) -> Theorems:
    share, symbols = channel_of(k)
    run = kernel.run("kary_truth", share, symbols)
    valid = [is_floor(share, k)]
    yield no_fault("truth", valid, run)
    claim = z3.And(wide(run.bits) == number(1 << 64) - (k - 1) * wide(share), z3.UGT(run.bits, share))
    yield Theorem("truth: it is 2^64 - (k-1) t, and more than t", valid, claim)


def kary_nearby(kernel: Kernel, k: int) -> Theorems:
    share, symbols = channel_of(k)
    level, random = word("level"), word("random")
    run = kernel.run("kary_nearby", share, symbols, level, random)
    valid = [is_level(level)]
    yield no_fault("nearby", valid, run)
    steps = (k - 1) * level
    # Of the 2^64 words, `fraction 2^11` lead to the upper level. So the mean is `steps` in units of 2^-53.
    fraction = steps & (ONE - 1)
    upper = z3.If(z3.ULT(wide(random), wide(fraction) << 11), number(1), number(0))
    claim = wide(run.bits) == wide(z3.LShR(steps, 53)) + upper
    yield Theorem("nearby: the mean over all words is the reward, exactly", valid, claim)
    yield Theorem("nearby: one of the k levels", valid, z3.ULT(run.bits, k))
    sum_of = ((k - 1) * wide(level) << 11) + (number((1 << 64) - 1) - wide(random))
    yield Theorem(
        "nearby: (k-1) r 2^11 plus the rest of the word, in whole units", valid, wide(run.bits) == sum_of >> 64
    )
    # This follows from the form above, in integers.
    r, s, rest = z3.Ints("r s rest")
    low, high = (((k - 1) * of * 2048 + rest) / (1 << 64) for of in (r, s))
    yield Theorem("nearby: of a higher reward no lower, word for word", [r >= 0, r <= s], low <= high, [], "QF_LIA")


def kary_category(kernel: Kernel, k: int) -> Theorems:
    share, symbols = channel_of(k)
    reward = word("reward")
    run = kernel.run("kary_category", share, symbols, reward)
    yield no_fault("category", [], run)
    yield Theorem("category: one of the k symbols, whatever the reward", [], z3.ULT(run.bits, k))


def kary_answer(kernel: Kernel, k: int) -> Theorems:
    share, symbols = channel_of(k)
    truth, random = z3.BitVec("truth", 8), word("random")
    run = kernel.run("kary_answer", share, symbols, truth, random)
    valid = [is_floor(share, k), z3.ULT(truth, k)]
    yield no_fault("answer", valid, run)
    # Multiples of t up to 16 t are below 2^68.
    u, t = z3.ZeroExt(8, random), z3.ZeroExt(8, share)
    # The words of the n-th other symbol are those from n t to (n+1) t, and the true one has the rest.
    parts = [
        z3.Implies(z3.And(n * t <= u, u < (n + 1) * t), run.bits == z3.If(z3.ULE(truth, n), byte(n + 1), byte(n)))
        for n in range(k - 1)
    ]
    rest = z3.Implies((k - 1) * t <= u, run.bits == truth)
    yield Theorem("answer: t words for each other symbol, the rest for the true one", valid, z3.And(*parts, rest))
    yield Theorem("answer: one of the k symbols", valid, z3.ULT(run.bits, k))


def kary_draw(kernel: Kernel, k: int) -> Theorems:
    share, symbols = channel_of(k)
    level, first, second = word("level"), word("first"), word("second")
    stock = z3.BitVec("stock", 8)
    run = kernel.run("kary_draw", share, symbols, level, first, second, stock)
    valid = [is_floor(share, k), is_level(level)]
    yield no_fault("k-ary draw", valid, run)
    near = kernel.run("kary_nearby", share, symbols, level, first)
    answer = kernel.run("kary_answer", share, symbols, near.bits, second)
    enough = z3.UGE(stock, 2)
    drawn = z3.Implies(enough, run.bits == 512 + z3.ZeroExt(24, answer.bits))
    yield Theorem("k-ary draw: nearby, then answer, by two words", valid, drawn)
    ended = z3.Implies(z3.Not(enough), run.bits == ENDED + (z3.ZeroExt(24, stock) << 8))
    yield Theorem("k-ary draw: no symbol without its words", valid, ended)


# The lower bound of e^ε - 1.


def is_sum(bits: z3.BitVecRef) -> z3.BoolRef:
    """What a step of the series returns: at least 1, in units of 2^-64, and no more than a step can."""
    return z3.And(z3.UGE(bits, 1 << 64), z3.ULT(bits, (1 << 127) + (1 << 64)))


def is_shift(bits: z3.BitVecRef) -> z3.BoolRef:
    """What the bound's shift is, whatever ε is. Compilers make use of it."""
    return z3.ULE(bits, 1086)


def series_step(kernel: Kernel) -> Theorems:
    epsilon, total, n = word("epsilon"), z3.BitVec("sum", 128), z3.BitVec("n", 8)
    run = kernel.run("series_step", epsilon, total, n)
    valid = [z3.UGE(n, 2)]
    yield no_fault("step", valid, run)
    yield Theorem("step: at least 1, and below 2^127 + 2^64", valid, is_sum(run.bits))
    # ε times the sum modulo 2^122 is that of its upper half times 2^58 and that of its lower half.
    halves = (z3.Extract(121, 58, total), z3.Concat(z3.BitVecVal(0, 6), z3.Extract(57, 0, total)))
    high, low = (multiply(z3.ZeroExt(64, half), z3.ZeroExt(64, epsilon), frozenset())[0] for half in halves)
    quotient = QUOTIENT(high + z3.LShR(low, 58), z3.ZeroExt(120, n))
    yield Theorem("step: 1 and the n-th part of ε times the halves", valid, run.bits == quotient + (1 << 64))
    # What follows for the product follows from this form alone: in integers, for any two products.
    p, q, divisor = z3.Ints("p q n")
    a = p + q / (1 << 58)
    parts = z3.Ints("quotient product")
    rise, product = parts[1] * (1 << 58), p * (1 << 58) + q
    facts = [lemmas.DIVISION.holds(a, divisor, *parts)]
    floor = z3.And(rise <= product, product < rise + divisor * (1 << 58))
    positive = [p >= 0, q >= 0, divisor >= 2]
    yield Theorem("step: 2^64 + floor(ε s/(2^58 n)) for s modulo 2^122, exactly", positive, floor, facts, "QF_NIA")


def growth(kernel: Kernel) -> Theorems:
    epsilon = word("epsilon")
    run = kernel.run("growth", epsilon, apart=(SERIES_STEP,))
    steps = [one for one in run.free if one.what == SERIES_STEP]
    if len(steps) != STEPS - 1:
        raise ShapeError(f"the series has {len(steps)} steps")
    proved = [is_sum(one.result) for one in steps]
    yield no_fault("growth", proved, run)
    yield Theorem("growth: the shift is at most 1086, whatever ε is", proved[-1:], is_shift(z3.Extract(63, 0, run.bits)))
    # ε is digits 2^-scale.
    inside = z3.And(z3.UGE(epsilon, EPSILONS[0]), z3.ULE(epsilon, EPSILONS[1]))
    digits = z3.Concat(z3.BitVecVal(1, 12), z3.Extract(51, 0, epsilon))
    scale = 1075 - z3.LShR(epsilon, 52)
    rounded = steps[0].operands[0]
    below, above = (of << wide(scale) for of in (wide(rounded), wide(rounded) + 1))
    whole = z3.And(below <= wide(digits) << 58, wide(digits) << 58 < above)
    yield Theorem("growth: ε rounded down to units of 2^-58", [inside], whole)
    sums = [z3.BitVecVal(1 << 64, 128), *(one.result for one in steps)]
    chained = [
        z3.And(one.operands[0] == rounded, one.operands[1] == sums[index], one.operands[2] == STEPS - index)
        for index, one in enumerate(steps)
    ]
    yield Theorem("growth: from 1 on, each step is of the one before it, by 100, 99, ..., 2", [], z3.And(*chained))
    # The sum is kept 2^drop, and less than 2^drop more. So kept 2^drop digits 2^(-64 - scale) is at most ε times it.
    total = sums[-1]
    drop = 64 - z3.Extract(31, 0, leading_zeros(total))
    kept = z3.LShR(total, z3.ZeroExt(96, drop)) & ((1 << 64) - 1)
    product, _ = multiply(z3.ZeroExt(64, digits), kept, frozenset())
    mantissa, shift = z3.Extract(127, 64, run.bits), z3.Extract(63, 0, run.bits)
    left = z3.Extract(31, 0, scale) + 11
    places = z3.If(z3.UGE(left, drop), left - drop, z3.BitVecVal(0, 32))
    exact = z3.And(z3.ZeroExt(64, mantissa) == z3.LShR(product, 53), shift == z3.ZeroExt(32, places))
    yield Theorem("growth: ε times the leading 64 bits of the sum, rounded down", [inside, *proved[-1:]], exact)


# The check of a floor that a server sends.


def verified(kernel: Kernel, k: int) -> Theorems:
    share, epsilon = word("share"), word("epsilon")
    run = kernel.run("kary_verify", byte(k), share, epsilon, apart=(GROWTH_BELOW,))
    yield from verify_theorems("k-ary verify", run, epsilon, share, k)


def floor_verified(kernel: Kernel) -> Theorems:
    floor, epsilon = word("floor"), word("epsilon")
    run = kernel.run("floor_verify", floor, epsilon, apart=(GROWTH_BELOW,))
    yield from verify_theorems("verify", run, epsilon, floor, 2)


def verify_theorems(name: str, run: Outcome, epsilon: z3.BitVecRef, share: z3.BitVecRef, k: int) -> Theorems:
    """Of every bound, mantissa 2^-shift."""
    bounds = [one for one in run.free if one.what == GROWTH_BELOW]
    if len(bounds) != 2:
        raise ShapeError("verify asks for one bound")
    mantissa, shift = (one.result for one in bounds)
    proved = [is_shift(shift)]
    yield no_fault(name, proved, run)
    accepted = run.bits != REFUSED
    yield Theorem(
        f"{name}: accepts only 1 <= t and k t < 2^64, unchanged",
        proved,
        z3.Implies(accepted, z3.And(is_floor(share, k), wide(run.bits) == wide(share))),
    )
    yield Theorem(f"{name}: the bound is that of ε", [], z3.And(*(one.operands[0] == epsilon for one in bounds)))
    product, _ = multiply(z3.ZeroExt(64, mantissa), z3.ZeroExt(64, share), frozenset())
    claim = accepted == fits(z3.ZeroExt(64, -(k * share)), shift, product)
    yield Theorem(
        f"{name}: of these it accepts if and only if (2^64 - k t)/t is at most the bound",
        [is_floor(share, k), *proved],
        claim,
    )


def fits(width: z3.BitVecRef, shift: z3.BitVecRef, product: z3.BitVecRef) -> z3.BoolRef:
    """Whether `width 2^shift <= product`, in 128 bits: see `comparison`."""
    room = z3.ULE(shift, z3.Extract(31, 0, leading_zeros(width)))
    return z3.And(room, z3.ULE(width << z3.ZeroExt(96, shift), product))


def comparison(kernel: Kernel) -> Theorems:
    """What `fits` says of the numbers of `verify`, whatever the kernel is."""
    del kernel
    share, width, shift = word("share"), word("width"), z3.BitVec("shift", 32)
    product = z3.BitVec("product", 128)
    # `width <= t x` with x = mantissa 2^-shift: both sides times 2^shift are integers, and t mantissa is a product.
    exact = z3.And(z3.ULT(shift, 128), z3.ULE(wide(width) << wide(shift), wide(product)))
    yield Theorem("comparison: 128 bits suffice", [width != 0], fits(z3.ZeroExt(64, width), shift, product) == exact)
    for k in ALPHABETS:
        claim = wide(-(k * share)) == number(1 << 64) - k * wide(share)
        yield Theorem(f"comparison: 2^64 - k t in a word, k = {k}", [is_floor(share, k)], claim)


SINGLE: dict[str, Callable[[Kernel], Theorems]] = {
    "width_of_floor": width_of_floor,
    "threshold": threshold,
    "bit": bit,
    "report": report,
    "levels": levels,
    "range_level": range_level,
    "linear": linear,
    "quadratic": quadratic,
    "exponential": exponential,
    "series_step": series_step,
    "growth": growth,
    "comparison": comparison,
    "floor_verified": floor_verified,
}
BY_ALPHABET: dict[str, Callable[[Kernel, int], Theorems]] = {
    "kary_truth": kary_truth,
    "kary_nearby": kary_nearby,
    "kary_category": kary_category,
    "kary_answer": kary_answer,
    "kary_draw": kary_draw,
    "kary_verify": verified,
}


def groups() -> list[tuple[str, int | None]]:
    """All groups of theorems: those of k symbols for each k."""
    return [(name, None) for name in SINGLE] + [(name, k) for name in BY_ALPHABET for k in ALPHABETS]


def theorems(kernel: Kernel, group: str, k: int | None) -> Theorems:
    """The theorems of a group."""
    if k is None:
        yield from SINGLE[group](kernel)
        return
    for theorem in BY_ALPHABET[group](kernel, k):
        yield replace(theorem, name=f"{theorem.name}, k = {k}")


@dataclass
class Failure(Exception):
    """A theorem that is not proved."""

    theorem: str
    reason: str
    # Whether there is an input that breaks it.
    is_disproved: bool = False

    def __str__(self) -> str:
        return f"{self.theorem}: {self.reason}"


def check(theorem: Theorem, milliseconds: int) -> None:
    """Proves a theorem, or raises."""
    solver = z3.Solver()
    solver.set("timeout", milliseconds)
    solver.add(*theorem.hypotheses)
    if solver.check() != z3.sat:
        raise Failure(theorem.name, "its hypotheses hold for no input")
    facts = lemmas.of_products([*theorem.hypotheses, theorem.claim])
    solver = z3.SolverFor(theorem.logic)
    solver.set("timeout", milliseconds)
    solver.add(*theorem.hypotheses, *theorem.facts, *facts, z3.Not(theorem.claim))
    answer = solver.check()
    if answer == z3.sat:
        raise Failure(theorem.name, f"does not hold, as for {solver.model()}", is_disproved=True)
    if answer != z3.unsat:
        raise Failure(theorem.name, f"neither proved nor disproved: {solver.reason_unknown()}")
