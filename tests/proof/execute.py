"""Turns functions of LLVM IR into terms of bit-vectors.

A function is run once, with symbols for its arguments. Where paths meet, their values are merged. What must
not happen is gathered as duties, each with the condition under which it is met: no panic, no `unreachable`,
no poison where poison is undefined behaviour. A proof shows that no input breaks one.

Numbers of type `double` are their 64 bits. Comparisons of them are exact. Results of arithmetic on them are
free symbols: any value at all, so that what is proved does not rest on floating-point arithmetic.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import z3
from ir import Function, Instruction, Module, Operand, RefusedError, Type

# More visits of blocks than any loop of the kernel takes, by far.
MAX_VISITS = 2000
WIDE = 128

# The product of two numbers below 2^64, and that of two others modulo 2^128. Neither is defined: a proof
# uses what `lemmas.py` has shown about products of integers.
PRODUCT = z3.Function("product", *[z3.BitVecSort(WIDE)] * 3)
WRAPPED = z3.Function("wrapped_product", *[z3.BitVecSort(WIDE)] * 3)
# The quotient of two numbers, rounded down. It is not defined either.
QUOTIENT = z3.Function("quotient", *[z3.BitVecSort(WIDE)] * 3)
# Whether the product of two signed numbers is beyond 128 bits.
OVERFLOWS = z3.Function("overflows", *[z3.BitVecSort(WIDE)] * 2, z3.BoolSort())

NEVER = z3.BoolVal(False)
INFINITY = 0x7FF << 52


def either(*conditions: z3.BoolRef) -> z3.BoolRef:
    """`Or`, without what is false anyway."""
    kept = [condition for condition in conditions if not z3.is_false(condition)]
    if not kept:
        return NEVER
    return kept[0] if len(kept) == 1 else z3.Or(*kept)


def both(*conditions: z3.BoolRef) -> z3.BoolRef:
    """`And`, without what is true anyway."""
    kept = [condition for condition in conditions if not z3.is_true(condition)]
    if not kept:
        return z3.BoolVal(True)
    return kept[0] if len(kept) == 1 else z3.And(*kept)


def as_bit(condition: z3.BoolRef) -> z3.BitVecRef:
    """A truth value as a number of one bit."""
    condition = z3.simplify(condition)
    if z3.is_true(condition) or z3.is_false(condition):
        return z3.BitVecVal(int(z3.is_true(condition)), 1)
    return z3.If(condition, z3.BitVecVal(1, 1), z3.BitVecVal(0, 1))


def is_set(bit: z3.BitVecRef) -> z3.BoolRef:
    """The truth value of a number of one bit."""
    return z3.simplify(bit == 1)


@dataclass(frozen=True)
class Value:
    """A number, and the condition under which it is poison."""

    bits: z3.BitVecRef
    poison: z3.BoolRef = NEVER


@dataclass(frozen=True)
class Pointer:
    """A place: which object, and how many bytes into it."""

    object: int
    offset: int = 0


@dataclass(frozen=True)
class Struct:
    """Several values as one."""

    parts: tuple[Value, ...]


Any = Value | Pointer | Struct


@dataclass
class Object:
    """Memory that a function has, or is given."""

    size: int
    align: int
    is_readonly: bool = False


@dataclass
class Duty:
    """Something that must hold whenever `when` does."""

    when: z3.BoolRef
    holds: z3.BoolRef
    what: str


@dataclass
class Free:
    """A result that may be anything."""

    what: str
    operands: list[z3.BitVecRef]
    result: z3.BitVecRef


@dataclass
class State:
    """Where a run is: the condition of being here, names, and bytes in memory."""

    when: z3.BoolRef
    names: dict[str, Any]
    memory: dict[int, list[Value]]


@dataclass
class Outcome:
    """What a run has come to."""

    result: Any | None
    duties: list[Duty]
    free: list[Free]
    memory: dict[int, list[Value]] = field(default_factory=dict)

    @property
    def bits(self) -> z3.BitVecRef:
        """The result, a number."""
        if not isinstance(self.result, Value):
            raise RefusedError("the result is no number")
        return self.result.bits

    def broken(self) -> z3.BoolRef:
        """That some duty is not met."""
        return either(*(z3.And(duty.when, z3.Not(duty.holds)) for duty in self.duties))


def merge_numbers(first: z3.BoolRef, one: Value, other: Value) -> Value:
    if one is other:
        return one
    bits = one.bits if one.bits.eq(other.bits) else z3.If(first, one.bits, other.bits)
    poison = one.poison if one.poison.eq(other.poison) else z3.If(first, one.poison, other.poison)
    return Value(bits, poison)


def merge_values(first: z3.BoolRef, one: Any, other: Any) -> Any:
    if one is other:
        return one
    if isinstance(one, Pointer) and isinstance(other, Pointer) and one == other:
        return one
    if isinstance(one, Value) and isinstance(other, Value):
        return merge_numbers(first, one, other)
    if isinstance(one, Struct) and isinstance(other, Struct):
        pairs = zip(one.parts, other.parts, strict=True)
        return Struct(tuple(merge_numbers(first, *pair) for pair in pairs))
    raise RefusedError("two pointers that meet")


def merge(one: State | None, other: State) -> State:
    """The state of which `one` or `other` holds; both never do."""
    if one is None:
        return other
    first = one.when
    names = {
        name: merge_values(first, value, other.names[name]) for name, value in one.names.items() if name in other.names
    }
    memory = {}
    for key in one.memory.keys() & other.memory.keys():
        pairs = zip(one.memory[key], other.memory[key], strict=True)
        memory[key] = [merge_numbers(first, *pair) for pair in pairs]
    return State(z3.simplify(z3.Or(one.when, other.when)), names, memory)


# Comparisons of doubles, by their bits.


def is_nan(x: z3.BitVecRef) -> z3.BoolRef:
    return z3.UGT(x & ((1 << 63) - 1), INFINITY)


def order_key(x: z3.BitVecRef) -> z3.BitVecRef:
    """A signed number in the order of doubles that are numbers; both zeros have 0."""
    size = x & ((1 << 63) - 1)
    return z3.If(z3.Extract(63, 63, x) == 1, -size, size)


def compare_doubles(predicate: str, a: z3.BitVecRef, b: z3.BitVecRef) -> z3.BoolRef:
    nan = z3.Or(is_nan(a), is_nan(b))
    left, right = order_key(a), order_key(b)
    ordered = {
        "eq": left == right,
        "ne": left != right,
        "lt": left < right,
        "le": left <= right,
        "gt": left > right,
        "ge": left >= right,
    }
    if predicate == "ord":
        return z3.Not(nan)
    if predicate == "uno":
        return nan
    if predicate[0] == "o" and predicate[1:] in ordered:
        return z3.And(z3.Not(nan), ordered[predicate[1:]])
    if predicate[0] == "u" and predicate[1:] in ordered:
        return z3.Or(nan, ordered[predicate[1:]])
    raise RefusedError(f"the comparison fcmp {predicate}")


COMPARISONS: dict[str, Callable[[z3.BitVecRef, z3.BitVecRef], z3.BoolRef]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "ult": z3.ULT,
    "ule": z3.ULE,
    "ugt": z3.UGT,
    "uge": z3.UGE,
    "slt": lambda a, b: a < b,
    "sle": lambda a, b: a <= b,
    "sgt": lambda a, b: a > b,
    "sge": lambda a, b: a >= b,
}


def in_range(bits: z3.BitVecRef, limits: tuple[int, int]) -> z3.BoolRef:
    """Whether a number is in a range of LLVM's, which may go over the end and begin again."""
    low, high = limits
    return z3.simplify(z3.ULT(bits - low, z3.BitVecVal(high - low, bits.size())))


def leading_zeros(bits: z3.BitVecRef) -> z3.BitVecRef:
    size = bits.size()
    count = z3.BitVecVal(size, size)
    for index in range(size):
        count = z3.If(z3.Extract(index, index, bits) == 1, z3.BitVecVal(size - 1 - index, size), count)
    return count


def widened(bits: z3.BitVecRef, is_signed: bool) -> z3.BitVecRef:
    extend = z3.SignExt if is_signed else z3.ZeroExt
    return extend(bits.size(), bits)


def is_constant(bits: z3.BitVecRef) -> bool:
    return bool(z3.is_bv_value(bits))


def is_narrow(bits: z3.BitVecRef) -> bool:
    """Whether a number of 128 bits is seen to be below 2^64."""
    if bits.size() != WIDE:
        return False
    return bool(z3.simplify(z3.Extract(WIDE - 1, WIDE // 2, bits)).eq(z3.BitVecVal(0, WIDE // 2)))


def in_order(a: z3.BitVecRef, b: z3.BitVecRef) -> tuple[z3.BitVecRef, z3.BitVecRef]:
    a, b = z3.simplify(a), z3.simplify(b)
    return (a, b) if a.get_id() <= b.get_id() else (b, a)


def multiply(a: z3.BitVecRef, b: z3.BitVecRef, flags: frozenset[str]) -> tuple[z3.BitVecRef, z3.BoolRef]:
    """The product, and when its flags make it poison."""
    size = a.size()
    if is_constant(z3.simplify(a)) or is_constant(z3.simplify(b)):
        poison = [
            widened(a * b, is_signed) != widened(a, is_signed) * widened(b, is_signed)
            for flag, is_signed in (("nuw", False), ("nsw", True))
            if flag in flags
        ]
        return a * b, either(*poison)
    if size == WIDE and not (is_narrow(a) and is_narrow(b)):
        # Whether it is beyond 128 bits without a sign is not decided. So it counts as poison then, which is
        # more than is true.
        poison = [OVERFLOWS(*in_order(a, b))] if "nsw" in flags else []
        return WRAPPED(*in_order(a, b)), either(*poison, z3.BoolVal("nuw" in flags))
    if size > WIDE:
        raise RefusedError(f"a product of {size} bits")
    wide = PRODUCT(*in_order(z3.ZeroExt(WIDE - size, a), z3.ZeroExt(WIDE - size, b)))
    poison = []
    if size < WIDE:
        if "nsw" in flags:
            poison.append(z3.BoolVal(True))
        if "nuw" in flags:
            poison.append(z3.Extract(WIDE - 1, size, wide) != 0)
    elif "nsw" in flags:
        poison.append(wide < 0)
    return z3.simplify(z3.Extract(size - 1, 0, wide)), either(*poison)


def arithmetic(op: str, a: z3.BitVecRef, b: z3.BitVecRef, flags: frozenset[str]) -> tuple[z3.BitVecRef, z3.BoolRef]:
    """The result of an operation on integers, and when its flags make it poison."""
    size = z3.BitVecVal(a.size(), a.size())
    if op in ("add", "sub"):
        result = a + b if op == "add" else a - b
        poison = []
        for flag, is_signed in (("nuw", False), ("nsw", True)):
            if flag in flags:
                x, y = widened(a, is_signed), widened(b, is_signed)
                poison.append((x + y if op == "add" else x - y) != widened(result, is_signed))
        return result, either(*poison)
    if op == "mul":
        return multiply(a, b, flags)
    if op == "shl":
        result = a << b
        poison = [z3.UGE(b, size)]
        if "nuw" in flags:
            poison.append(z3.LShR(result, b) != a)
        if "nsw" in flags:
            poison.append((result >> b) != a)
        return result, either(*poison)
    if op in ("lshr", "ashr"):
        result = z3.LShR(a, b) if op == "lshr" else a >> b
        poison = [z3.UGE(b, size)]
        if "exact" in flags:
            poison.append((result << b) != a)
        return result, either(*poison)
    if op == "and":
        return a & b, NEVER
    if op == "or":
        return a | b, (a & b) != 0 if "disjoint" in flags else NEVER
    if op == "xor":
        return a ^ b, NEVER
    raise RefusedError(f"the operation {op!r}")


# Functions whose result may be anything. What is proved holds whatever they return. That they return is an
# assumption. The loss is for the text of a refusal.
ANY_RESULT = ("channel5share5Share4loss",)
# Functions of the kernel that have theorems of their own, and the bits of each number that they return. A proof
# about a function that calls them may take any numbers for their results, and say which.
SERIES_STEP = "channel6growth6Growth4step"
GROWTH_BELOW = "channel6growth6Growth5below"
RESULTS = {SERIES_STEP: (128,), GROWTH_BELOW: (64, 32)}
# Functions that never return. That one of them is called breaks a duty.
PANICS = ("core9panicking", "core6option13expect_failed", "core6result13unwrap_failed")


class Run:
    """One run of a function and of all that it calls."""

    def __init__(self, modules: list[Module], apart: tuple[str, ...] = ()) -> None:
        self.modules = modules
        # Functions of `RESULTS` that are not run.
        self.apart = apart
        self.objects: dict[int, Object] = {}
        self.duties: list[Duty] = []
        self.free: list[Free] = []
        self.visits = 0

    def new_object(self, size: int, align: int, is_readonly: bool = False) -> Pointer:
        key = len(self.objects)
        self.objects[key] = Object(size, align, is_readonly)
        return Pointer(key)

    def find(self, name: str, first: Module) -> tuple[Module, Function] | None:
        for module in [first, *self.modules]:
            if name in module.starts:
                return module, module.function(name)
        return None

    def must(self, when: z3.BoolRef, holds: z3.BoolRef, what: str) -> None:
        holds = z3.simplify(holds)
        if not z3.is_true(holds) and not z3.is_false(z3.simplify(when)):
            self.duties.append(Duty(when, holds, what))

    def anything(self, what: str, operands: list[z3.BitVecRef], bits: int = 64) -> z3.BitVecRef:
        result = z3.BitVec(f"any.{what}.{len(self.free)}", bits)
        self.free.append(Free(what, operands, result))
        return result

    def call(
        self, name: str, arguments: list[Any], when: z3.BoolRef, memory: dict[int, list[Value]], module: Module
    ) -> tuple[Any | None, dict[int, list[Value]]]:
        found = self.find(name, module)
        if found is None:
            raise RefusedError(f"a call of {name}, which is not in the files")
        frame = Frame(self, *found)
        return frame.run(arguments, when, memory)


class Frame:
    """One call of one function."""

    def __init__(self, run: Run, module: Module, function: Function) -> None:
        self.run_of = run
        self.module = module
        self.function = function
        self.ranks = self.order_blocks()
        self.ended: State | None = None
        self.result: Any | None = None
        self.waiting: dict[str, State] = {}

    def order_blocks(self) -> dict[str, int]:
        """The place of each block in an order in which only jumps back of loops go backwards."""
        seen: set[str] = set()
        finished: list[str] = []

        def visit(label: str) -> None:
            seen.add(label)
            last = self.function.blocks[label][-1]
            for target in [*last.labels, *(label for _, label in last.cases)]:
                if target not in seen:
                    visit(target)
            finished.append(label)

        visit(next(iter(self.function.blocks)))
        return {label: rank for rank, label in enumerate(reversed(finished))}

    def run(
        self, arguments: list[Any], when: z3.BoolRef, memory: dict[int, list[Value]]
    ) -> tuple[Any | None, dict[int, list[Value]]]:
        names = self.take(arguments, when)
        entry = next(iter(self.function.blocks))
        self.waiting = {entry: State(when, names, memory)}
        while self.waiting:
            label = min(self.waiting, key=self.ranks.__getitem__)
            self.run_of.visits += 1
            if self.run_of.visits > MAX_VISITS:
                raise RefusedError("a loop without a known end")
            self.block(label, self.waiting.pop(label))
        if self.ended is None:
            return None, memory
        return self.result, self.ended.memory

    def take(self, arguments: list[Any], when: z3.BoolRef) -> dict[str, Any]:
        """The arguments under their names, in the ranges that the function says."""
        names: dict[str, Any] = {}
        for parameter, argument in zip(self.function.parameters, arguments, strict=True):
            if parameter.range is not None and isinstance(argument, Value):
                self.run_of.must(when, in_range(argument.bits, parameter.range), "the range of an argument")
            names[str(parameter.name)] = argument
        return names

    def block(self, label: str, state: State) -> None:
        for instruction in self.function.blocks[label]:
            if instruction.op == "phi":
                continue
            if instruction.op in ("br", "switch", "ret", "unreachable"):
                getattr(self, f"end_{instruction.op}")(instruction, state, label)
                return
            if not self.step(instruction, state):
                return
        raise RefusedError("a block without an end")

    def go(self, label: str, source: str, state: State, condition: z3.BoolRef) -> None:
        when = z3.simplify(both(state.when, condition))
        if z3.is_false(when):
            return
        arrived = State(when, dict(state.names), {key: list(value) for key, value in state.memory.items()})
        for instruction in self.function.blocks[label]:
            if instruction.op != "phi":
                break
            operand = instruction.operands[instruction.labels.index(source)]
            arrived.names[str(instruction.dest)] = self.value(operand, state)
        self.waiting[label] = merge(self.waiting.get(label), arrived)

    def end_br(self, instruction: Instruction, state: State, label: str) -> None:
        if not instruction.operands:
            self.go(instruction.labels[0], label, state, z3.BoolVal(True))
            return
        condition = self.number(instruction.operands[0], state)
        self.run_of.must(state.when, z3.Not(condition.poison), "a branch on poison")
        chosen = is_set(condition.bits)
        if instruction.labels[0] == instruction.labels[1]:
            self.go(instruction.labels[0], label, state, z3.BoolVal(True))
            return
        self.go(instruction.labels[0], label, state, chosen)
        self.go(instruction.labels[1], label, state, z3.simplify(z3.Not(chosen)))

    def end_switch(self, instruction: Instruction, state: State, label: str) -> None:
        value = self.number(instruction.operands[0], state)
        self.run_of.must(state.when, z3.Not(value.poison), "a switch on poison")
        targets: dict[str, list[z3.BoolRef]] = {}
        none = []
        for number, target in instruction.cases:
            chosen = z3.simplify(value.bits == number)
            targets.setdefault(target, []).append(chosen)
            none.append(z3.Not(chosen))
        targets.setdefault(instruction.labels[0], []).append(z3.simplify(both(*none)))
        for target, conditions in targets.items():
            self.go(target, label, state, z3.simplify(either(*conditions)))

    def end_ret(self, instruction: Instruction, state: State, label: str) -> None:
        del label
        result = self.value(instruction.operands[0], state) if instruction.operands else None
        parts = result.parts if isinstance(result, Struct) else (result,)
        for part in parts:
            if isinstance(part, Value) and self.function.result_noundef:
                self.run_of.must(state.when, z3.Not(part.poison), "poison is returned")
        if isinstance(result, Value) and self.function.result_range is not None:
            holds = in_range(result.bits, self.function.result_range)
            self.run_of.must(state.when, holds, "the range of a result")
        if self.ended is None:
            self.result = result
        elif result is not None and self.result is not None:
            self.result = merge_values(self.ended.when, self.result, result)
        self.ended = merge(self.ended, replace(state, names={}))

    def end_unreachable(self, instruction: Instruction, state: State, label: str) -> None:
        del instruction, label
        self.run_of.must(state.when, NEVER, f"`unreachable` of {self.function.name} is reached")

    # Operands.

    def value(self, operand: Operand, state: State) -> Any:
        if operand.name is not None:
            if operand.name.startswith("@"):
                raise RefusedError(f"the global {operand.name}")
            value = state.names[operand.name]
        elif operand.parts:
            value = Struct(tuple(self.number(part, state) for part in operand.parts))
        elif operand.is_poison:
            value = Value(z3.BitVecVal(0, operand.type.bits), z3.BoolVal(True))
        else:
            value = Value(z3.BitVecVal(operand.constant, operand.type.bits))
        if operand.range is not None and isinstance(value, Value):
            outside = z3.simplify(z3.Not(in_range(value.bits, operand.range)))
            value = Value(value.bits, either(value.poison, outside))
        return value

    def number(self, operand: Operand, state: State) -> Value:
        value = self.value(operand, state)
        if not isinstance(value, Value):
            raise RefusedError("a number is something else")
        return value

    def pointer(self, operand: Operand, state: State) -> Pointer:
        value = self.value(operand, state)
        if not isinstance(value, Pointer):
            raise RefusedError("a pointer is something else")
        return value

    # Instructions. Each returns the value, if there is one.

    def step(self, instruction: Instruction, state: State) -> bool:
        """Runs an instruction. False: the run does not go on behind it."""
        op = instruction.op
        if op == "call":
            return self.step_call(instruction, state)
        method = getattr(self, f"step_{op}", None)
        if method is None:
            method = self.floating if op in ("fadd", "fsub", "fmul", "fdiv") else self.integer
            result = self.by_parts(
                instruction, [self.value(operand, state) for operand in instruction.operands], method
            )
        else:
            result = method(instruction, state)
        self.keep(instruction, state, result)
        return True

    def keep(self, instruction: Instruction, state: State, result: Any | None) -> None:
        if instruction.dest is None:
            return
        if result is None:
            raise RefusedError(f"no value of {instruction.line.strip()!r}")
        if isinstance(result, Value):
            poison = result.poison
            if instruction.range is not None:
                poison = either(poison, z3.Not(in_range(result.bits, instruction.range)))
            if instruction.noundef:
                self.run_of.must(state.when, z3.Not(poison), f"poison in {instruction.line.strip()!r}")
            result = Value(z3.simplify(result.bits), z3.simplify(poison))
        state.names[instruction.dest] = result

    @staticmethod
    def by_parts(
        instruction: Instruction, values: list[Any], method: Callable[[Instruction, list[Value]], Value]
    ) -> Any:
        """The result of an operation on numbers, or on each number of vectors."""
        numbers = [value for value in values if isinstance(value, Value)]
        if len(numbers) == len(values) and instruction.type.kind != "vector":
            return method(instruction, numbers)
        vectors = [value.parts for value in values if isinstance(value, Struct)]
        if len(vectors) != len(values) or instruction.type.kind != "vector":
            raise RefusedError("an operation on what are neither numbers nor vectors")
        return Struct(tuple(method(instruction, list(parts)) for parts in zip(*vectors, strict=True)))

    @staticmethod
    def integer(instruction: Instruction, numbers: list[Value]) -> Value:
        a, b = numbers
        bits, poison = arithmetic(instruction.op, a.bits, b.bits, instruction.flags)
        return Value(bits, either(a.poison, b.poison, poison))

    def step_udiv(self, instruction: Instruction, state: State) -> Value:
        a, b = (self.number(operand, state) for operand in instruction.operands)
        size = a.bits.size()
        if instruction.flags or size > WIDE:
            raise RefusedError("an exact division, or one of wide numbers")
        self.run_of.must(state.when, z3.And(b.bits != 0, z3.Not(b.poison)), "a division by zero")
        if is_constant(a.bits) and is_constant(b.bits):
            return Value(z3.UDiv(a.bits, b.bits), either(a.poison, b.poison))
        quotient = QUOTIENT(*(z3.simplify(z3.ZeroExt(WIDE - size, of.bits)) for of in (a, b)))
        return Value(z3.simplify(z3.Extract(size - 1, 0, quotient)), either(a.poison, b.poison))

    def floating(self, instruction: Instruction, numbers: list[Value]) -> Value:
        a, b = numbers
        result = self.run_of.anything(instruction.op, [a.bits, b.bits])
        return Value(result, either(a.poison, b.poison))

    def step_icmp(self, instruction: Instruction, state: State) -> Value:
        a, b = (self.number(operand, state) for operand in instruction.operands)
        holds = COMPARISONS[instruction.predicate](a.bits, b.bits)
        poison = NEVER
        if "samesign" in instruction.flags:
            poison = (a.bits < 0) != (b.bits < 0)
        return Value(as_bit(holds), either(a.poison, b.poison, poison))

    def step_fcmp(self, instruction: Instruction, state: State) -> Value:
        a, b = (self.number(operand, state) for operand in instruction.operands)
        holds = compare_doubles(instruction.predicate, a.bits, b.bits)
        return Value(as_bit(holds), either(a.poison, b.poison))

    def step_select(self, instruction: Instruction, state: State) -> Any:
        condition = self.number(instruction.operands[0], state)
        one, other = (self.value(operand, state) for operand in instruction.operands[1:])
        chosen = is_set(condition.bits)
        if z3.is_true(chosen) or z3.is_false(chosen):
            value = one if z3.is_true(chosen) else other
        else:
            value = merge_values(chosen, one, other)
        if isinstance(value, Value):
            return Value(value.bits, either(condition.poison, value.poison))
        raise RefusedError("a choice between what are no numbers")

    def step_freeze(self, instruction: Instruction, state: State) -> Value:
        value = self.number(instruction.operands[0], state)
        if z3.is_false(value.poison):
            return value
        arbitrary = self.run_of.anything("freeze", [], value.bits.size())
        return Value(z3.If(value.poison, arbitrary, value.bits))

    def step_zext(self, instruction: Instruction, state: State) -> Value:
        value = self.number(instruction.operands[0], state)
        bits = z3.ZeroExt(instruction.type.bits - value.bits.size(), value.bits)
        negative = value.bits < 0 if "nneg" in instruction.flags else NEVER
        return Value(bits, either(value.poison, negative))

    def step_sext(self, instruction: Instruction, state: State) -> Value:
        value = self.number(instruction.operands[0], state)
        return Value(z3.SignExt(instruction.type.bits - value.bits.size(), value.bits), value.poison)

    def step_trunc(self, instruction: Instruction, state: State) -> Value:
        value = self.number(instruction.operands[0], state)
        size = instruction.type.bits
        bits = z3.Extract(size - 1, 0, value.bits)
        lost = value.bits.size() - size
        poison = [value.poison]
        if "nuw" in instruction.flags:
            poison.append(z3.ZeroExt(lost, bits) != value.bits)
        if "nsw" in instruction.flags:
            poison.append(z3.SignExt(lost, bits) != value.bits)
        return Value(bits, either(*poison))

    def step_bitcast(self, instruction: Instruction, state: State) -> Any:
        of, to = instruction.operands[0].type, instruction.type
        if of.kind == to.kind == "vector" and [one.bits for one in of.parts] == [one.bits for one in to.parts]:
            return self.value(instruction.operands[0], state)
        value = self.number(instruction.operands[0], state)
        if instruction.type.bits != value.bits.size():
            raise RefusedError("a bitcast to another size")
        return value

    def step_uitofp(self, instruction: Instruction, state: State) -> Value:
        value = self.number(instruction.operands[0], state)
        negative = value.bits < 0 if "nneg" in instruction.flags else NEVER
        result = self.run_of.anything("uitofp", [value.bits])
        return Value(result, either(value.poison, negative))

    def step_extractvalue(self, instruction: Instruction, state: State) -> Value:
        value = self.value(instruction.operands[0], state)
        if not isinstance(value, Struct) or len(instruction.indices) != 1:
            raise RefusedError("a part of what has none")
        return value.parts[instruction.indices[0]]

    def step_insertvalue(self, instruction: Instruction, state: State) -> Struct:
        whole = instruction.operands[0]
        if whole.is_poison:
            blank = (Value(z3.BitVecVal(0, part.bits), z3.BoolVal(True)) for part in whole.type.parts)
            parts = list(blank)
        else:
            value = self.value(whole, state)
            if not isinstance(value, Struct):
                raise RefusedError("a part of what has none")
            parts = list(value.parts)
        parts[instruction.indices[0]] = self.number(instruction.operands[1], state)
        return Struct(tuple(parts))

    def vector(self, operand: Operand, state: State) -> Struct:
        value = self.value(operand, state)
        if not isinstance(value, Struct) or operand.type.kind != "vector":
            raise RefusedError("a vector is something else")
        return value

    def step_insertelement(self, instruction: Instruction, state: State) -> Struct:
        whole, number, index = instruction.operands
        parts = list(self.vector(whole, state).parts)
        if index.constant is None or not 0 <= index.constant < len(parts):
            raise RefusedError("a place in a vector that is not constant")
        parts[index.constant] = self.number(number, state)
        return Struct(tuple(parts))

    def step_shufflevector(self, instruction: Instruction, state: State) -> Struct:
        parts = self.vector(instruction.operands[0], state).parts
        parts += self.vector(instruction.operands[1], state).parts
        return Struct(tuple(parts[index] for index in instruction.indices))

    # Memory.

    def step_alloca(self, instruction: Instruction, state: State) -> Pointer:
        size = instruction.type.size
        pointer = self.run_of.new_object(size, instruction.align)
        blank = Value(z3.BitVecVal(0, 8), z3.BoolVal(True))
        state.memory[pointer.object] = [blank] * size
        return pointer

    def step_getelementptr(self, instruction: Instruction, state: State) -> Pointer:
        base = self.pointer(instruction.operands[0], state)
        offset = base.offset + instruction.offset
        if not 0 <= offset <= self.run_of.objects[base.object].size:
            raise RefusedError("a pointer out of its object")
        return Pointer(base.object, offset)

    def place(self, pointer: Pointer, size: int, align: int) -> slice:
        of = self.run_of.objects[pointer.object]
        if pointer.offset + size > of.size:
            raise RefusedError("memory out of an object")
        if of.align % align != 0 or pointer.offset % align != 0:
            raise RefusedError("memory that is not aligned")
        return slice(pointer.offset, pointer.offset + size)

    def step_load(self, instruction: Instruction, state: State) -> Value:
        if instruction.type.kind not in ("int", "double"):
            raise RefusedError(f"a load of {instruction.type.kind}")
        pointer = self.pointer(instruction.operands[0], state)
        size = Type("int", instruction.type.bits).size
        found = state.memory[pointer.object][self.place(pointer, size, instruction.align)]
        bits = found[0].bits if size == 1 else z3.Concat(*(byte.bits for byte in reversed(found)))
        return Value(bits, either(*(byte.poison for byte in found)))

    def step_store(self, instruction: Instruction, state: State) -> None:
        pointer = self.pointer(instruction.operands[1], state)
        if self.run_of.objects[pointer.object].is_readonly:
            raise RefusedError("a store to what is only read")
        if instruction.operands[0].type.kind == "vector":
            numbers = self.vector(instruction.operands[0], state).parts
        else:
            numbers = (self.number(instruction.operands[0], state),)
        stored = [byte for number in numbers for byte in self.bytes_of(number)]
        state.memory[pointer.object][self.place(pointer, len(stored), instruction.align)] = stored

    @staticmethod
    def bytes_of(value: Value) -> list[Value]:
        """A number as it lies in memory: the lowest byte first, as on all targets here."""
        size = Type("int", value.bits.size()).size
        return [
            Value(z3.simplify(z3.Extract(8 * index + 7, 8 * index, value.bits)), value.poison) for index in range(size)
        ]

    # Calls.

    def step_call(self, instruction: Instruction, state: State) -> bool:
        name = instruction.callee
        if any(part in name for part in PANICS):
            self.run_of.must(state.when, NEVER, f"a panic in {self.function.name}: {name}")
            return False
        if name.startswith("@llvm."):
            self.keep(instruction, state, self.intrinsic(name, instruction, state))
            return True
        arguments = [self.value(operand, state) for operand in instruction.operands]
        for argument in arguments:
            if isinstance(argument, Value):
                self.run_of.must(state.when, z3.Not(argument.poison), f"poison is given to {name}")
        if any(part in name for part in ANY_RESULT):
            operands = [argument.bits for argument in arguments if isinstance(argument, Value)]
            result: Any | None = Value(self.run_of.anything(name, operands))
        elif any(part in name for part in self.run_of.apart):
            result = self.apart(name, arguments, state)
        else:
            result, state.memory = self.run_of.call(name, arguments, state.when, state.memory, self.module)
            if result is None and instruction.dest is not None:
                raise RefusedError(f"a call of {name} that does not come back")
        self.keep(instruction, state, result)
        return True

    def apart(self, name: str, arguments: list[Any], state: State) -> Any | None:
        """The result of a function that is not run: any numbers."""
        found = self.run_of.find(name, self.module)
        if found is None:
            raise RefusedError(f"a call of {name}, which is not in the files")
        Frame(self.run_of, *found).take(arguments, state.when)
        what = next(part for part in self.run_of.apart if part in name)
        operands = [argument.bits for argument in arguments if isinstance(argument, Value)]
        numbers = tuple(Value(self.run_of.anything(what, operands, bits)) for bits in RESULTS[what])
        # Where a target returns them through memory, that memory is the first argument.
        if isinstance(arguments[0], Pointer):
            stored = [byte for number in numbers for byte in self.bytes_of(number)]
            state.memory[arguments[0].object][self.place(arguments[0], len(stored), 1)] = stored
            return None
        return numbers[0] if len(numbers) == 1 else Struct(numbers)

    def intrinsic(self, name: str, instruction: Instruction, state: State) -> Any | None:
        parts = name.removeprefix("@llvm.").split(".")
        if name.startswith(("@llvm.lifetime.", "@llvm.experimental.noalias.scope.decl")):
            return None
        if parts[0] == "memcpy":
            self.copy(instruction, state)
            return None
        values = [self.number(operand, state) for operand in instruction.operands]
        poison = either(*(value.poison for value in values))
        if parts[0] == "assume":
            self.run_of.must(state.when, z3.And(is_set(values[0].bits), z3.Not(poison)), "an assumption")
            return None
        if parts[0] == "ctlz":
            of_zero = is_set(values[1].bits)
            return Value(leading_zeros(values[0].bits), either(poison, both(of_zero, values[0].bits == 0)))
        method = getattr(self, "intrinsic_" + "_".join(parts[:-1]), None)
        if method is None:
            raise RefusedError(f"the intrinsic {name}")
        result = method(*(value.bits for value in values))
        if isinstance(result, tuple):
            return Struct(tuple(Value(part, poison) for part in result))
        return Value(result, poison)

    def copy(self, instruction: Instruction, state: State) -> None:
        target, source = (self.pointer(operand, state) for operand in instruction.operands[:2])
        size, volatile = (operand.constant for operand in instruction.operands[2:])
        if size is None or volatile != 0 or self.run_of.objects[target.object].is_readonly:
            raise RefusedError("a copy of unknown size")
        found = state.memory[source.object][self.place(source, size, 1)]
        state.memory[target.object][self.place(target, size, 1)] = found

    @staticmethod
    def intrinsic_umax(a: z3.BitVecRef, b: z3.BitVecRef) -> z3.BitVecRef:
        return z3.If(z3.UGE(a, b), a, b)

    @staticmethod
    def intrinsic_umin(a: z3.BitVecRef, b: z3.BitVecRef) -> z3.BitVecRef:
        return z3.If(z3.ULE(a, b), a, b)

    @staticmethod
    def intrinsic_usub_sat(a: z3.BitVecRef, b: z3.BitVecRef) -> z3.BitVecRef:
        return z3.If(z3.UGE(a, b), a - b, z3.BitVecVal(0, a.size()))

    @staticmethod
    def intrinsic_uadd_sat(a: z3.BitVecRef, b: z3.BitVecRef) -> z3.BitVecRef:
        return z3.If(z3.UGE(a + b, a), a + b, z3.BitVecVal(-1, a.size()))

    @staticmethod
    def intrinsic_abs(a: z3.BitVecRef, is_minimum_poison: z3.BitVecRef) -> z3.BitVecRef:
        if not is_minimum_poison.eq(z3.BitVecVal(0, 1)):
            raise RefusedError("an absolute value, of which that of the least number is poison")
        return z3.If(a < 0, -a, a)

    @staticmethod
    def with_overflow(op: str, is_signed: bool, a: z3.BitVecRef, b: z3.BitVecRef) -> tuple[z3.BitVecRef, z3.BitVecRef]:
        flag = frozenset({"nsw" if is_signed else "nuw"})
        bits, overflow = arithmetic(op, a, b, flag)
        return bits, as_bit(overflow)

    @staticmethod
    def intrinsic_uadd_with_overflow(a: z3.BitVecRef, b: z3.BitVecRef) -> tuple[z3.BitVecRef, z3.BitVecRef]:
        return Frame.with_overflow("add", False, a, b)

    @staticmethod
    def intrinsic_usub_with_overflow(a: z3.BitVecRef, b: z3.BitVecRef) -> tuple[z3.BitVecRef, z3.BitVecRef]:
        return Frame.with_overflow("sub", False, a, b)

    @staticmethod
    def intrinsic_sadd_with_overflow(a: z3.BitVecRef, b: z3.BitVecRef) -> tuple[z3.BitVecRef, z3.BitVecRef]:
        return Frame.with_overflow("add", True, a, b)

    @staticmethod
    def intrinsic_ssub_with_overflow(a: z3.BitVecRef, b: z3.BitVecRef) -> tuple[z3.BitVecRef, z3.BitVecRef]:
        return Frame.with_overflow("sub", True, a, b)

    @staticmethod
    def intrinsic_smul_with_overflow(a: z3.BitVecRef, b: z3.BitVecRef) -> tuple[z3.BitVecRef, z3.BitVecRef]:
        if a.size() != WIDE or (is_narrow(a) and is_narrow(b)):
            raise RefusedError("the overflow of a signed product")
        return Frame.with_overflow("mul", True, a, b)

    @staticmethod
    def intrinsic_umul_with_overflow(a: z3.BitVecRef, b: z3.BitVecRef) -> tuple[z3.BitVecRef, z3.BitVecRef]:
        # Decided as one product of twice the size, whose factors are no constants in general.
        size = a.size()
        if is_constant(a) or is_constant(b):
            return Frame.with_overflow("mul", False, a, b)
        if size > WIDE // 2:
            raise RefusedError(f"the overflow of a product of {size} bits")
        wide = PRODUCT(*in_order(z3.ZeroExt(WIDE - size, a), z3.ZeroExt(WIDE - size, b)))
        return z3.Extract(size - 1, 0, wide), as_bit(z3.Extract(WIDE - 1, size, wide) != 0)

    @staticmethod
    def intrinsic_fabs(a: z3.BitVecRef) -> z3.BitVecRef:
        return a & ((1 << 63) - 1)

    def extreme(self, predicate: str, a: z3.BitVecRef, b: z3.BitVecRef) -> z3.BitVecRef:
        # Of two zeros either may come.
        either_zero = self.run_of.anything("zero", [], 1)
        equal = z3.If(either_zero == 1, a, b)
        chosen = z3.If(compare_doubles(predicate, a, b), a, b)
        number = z3.If(compare_doubles("oeq", a, b), equal, chosen)
        return z3.If(is_nan(a), b, z3.If(is_nan(b), a, number))

    def intrinsic_maxnum(self, a: z3.BitVecRef, b: z3.BitVecRef) -> z3.BitVecRef:
        return self.extreme("ogt", a, b)

    def intrinsic_minnum(self, a: z3.BitVecRef, b: z3.BitVecRef) -> z3.BitVecRef:
        return self.extreme("olt", a, b)

    def intrinsic_fptoui_sat_i8(self, a: z3.BitVecRef) -> z3.BitVecRef:
        return self.run_of.anything("fptoui", [a], 8)

    def intrinsic_fptoui_sat_i32(self, a: z3.BitVecRef) -> z3.BitVecRef:
        return self.run_of.anything("fptoui", [a], 32)


def execute(
    modules: list[Module],
    name: str,
    arguments: list[z3.BitVecRef | list[z3.BitVecRef]],
    apart: tuple[str, ...] = (),
) -> Outcome:
    """Runs a function. An argument that is a list is memory that the function reads: its bytes.

    Functions that are proved `apart` are not run.
    """
    run = Run(modules, apart)
    memory: dict[int, list[Value]] = {}
    values: list[Any] = []
    # Where a target returns wide numbers through memory, that memory is the first argument.
    through = re.search(r"sret\(\[(\d+) x i8\]\)", modules[0].function(f"@{name}").text.split("\n")[0])
    if through is not None:
        place = run.new_object(int(through.group(1)), 16)
        memory[place.object] = [Value(z3.BitVecVal(0, 8), z3.BoolVal(True))] * int(through.group(1))
        values.append(place)
    for argument in arguments:
        if isinstance(argument, list):
            pointer = run.new_object(len(argument), 16, is_readonly=True)
            memory[pointer.object] = [Value(byte) for byte in argument]
            values.append(pointer)
        else:
            values.append(Value(argument))
    result, memory = run.call(f"@{name}", values, z3.BoolVal(True), memory, modules[0])
    if through is not None:
        stored = memory[place.object]
        run.must(z3.BoolVal(True), z3.Not(either(*(byte.poison for byte in stored))), "poison is returned")
        result = Value(z3.simplify(z3.Concat(*(byte.bits for byte in reversed(stored)))))
    if not isinstance(result, Value) or not z3.is_false(z3.simplify(result.poison)):
        poison = result.poison if isinstance(result, Value) else z3.BoolVal(True)
        run.must(z3.BoolVal(True), z3.Not(poison), "the result is poison")
    return Outcome(result, run.duties, run.free, memory)
