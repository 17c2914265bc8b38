"""Tests of the translator: against the compiled library, and on small pieces of IR.

    python -m unittest test_translator

`prove.py` has compiled the library; `BANDANA_PROOF_TARGET` names the folder that it was told.
"""

from __future__ import annotations

import ctypes
import math
import os
import random
import struct
import tempfile
import unittest
from collections.abc import Callable
from pathlib import Path
from typing import Any

import z3
from compile import RELEASE, ROOT, build, library
from execute import PRODUCT, QUOTIENT, WRAPPED, Outcome, compare_doubles, execute
from ir import Module, RefusedError

TARGET = Path(os.environ.get("BANDANA_PROOF_TARGET", ROOT / "target/proof"))
ROUNDS = int(os.environ.get("BANDANA_PROOF_ROUNDS", "150"))
ONE = 1 << 53


def number_of(term: z3.ExprRef, values: list[tuple[z3.ExprRef, z3.ExprRef]]) -> int | bool:
    """The value of a term, with products and quotients as they are."""
    a, b = z3.Var(0, z3.BitVecSort(128)), z3.Var(1, z3.BitVecSort(128))
    operations = (PRODUCT, a * b), (WRAPPED, a * b), (QUOTIENT, z3.UDiv(a, b))
    exact = z3.substitute_funs(z3.substitute(term, *values), *operations)
    plain = z3.simplify(exact)
    if z3.is_bv_value(plain):
        return int(plain.as_long())
    if z3.is_true(plain) or z3.is_false(plain):
        return bool(z3.is_true(plain))
    raise AssertionError(f"no number: {plain}")


def some_word(source: random.Random) -> int:
    """A word, of which many are near powers of two."""
    near = (1 << source.randrange(65)) + source.randrange(-3, 4)
    short = source.getrandbits(source.randrange(1, 65))
    values: list[int] = [near, source.getrandbits(64), short]
    return source.choice(values) % (1 << 64)


def some_level(source: random.Random) -> int:
    return min(some_word(source) >> source.choice([0, 10, 11]), ONE)


def some_double(source: random.Random) -> int:
    """The bits of a number, often one from 0 to 1."""
    plain = struct.unpack("<Q", struct.pack("<d", source.random()))[0]
    special = source.choice([0, 1 << 63, 0x3FF << 52, (0x3FF << 52) + 1, 0x7FF << 52, (0x7FF << 52) + 1, 1])
    values: list[int] = [plain, plain, some_word(source), special]
    return source.choice(values)


def some_epsilon(source: random.Random) -> int:
    return int(struct.unpack("<Q", struct.pack("<d", 2 ** source.uniform(-20, 5)))[0])


class Wide(ctypes.Structure):
    """A number of 128 bits, in two registers."""

    _fields_ = (("low", ctypes.c_uint64), ("high", ctypes.c_uint64))


class AgainstTheLibrary(unittest.TestCase):
    """The compiled function and the term give the same number."""

    modules: list[Module]
    compiled: ctypes.CDLL

    @classmethod
    def setUpClass(cls) -> None:
        cls.modules = build(RELEASE, TARGET)
        cls.compiled = ctypes.CDLL(str(library(RELEASE, TARGET)))

    def call(self, name: str, arguments: list[int]) -> int:
        """Calls the compiled function."""
        function = self.modules[0].function(f"@proof_{name}")
        kinds: dict[int, Any] = {
            8: ctypes.c_uint8,
            32: ctypes.c_uint32,
            64: ctypes.c_uint64,
            1: ctypes.c_bool,
            128: Wide,
        }
        given: list[Any] = []
        for parameter, argument in zip(function.parameters, arguments, strict=True):
            if parameter.type.kind == "double":
                given.append(ctypes.c_double(struct.unpack("<d", struct.pack("<Q", argument))[0]))
            elif parameter.type.bits == 128:
                given.append(Wide(argument % (1 << 64), argument >> 64))
            else:
                given.append(kinds[parameter.type.bits](argument))
        compiled = getattr(self.compiled, f"proof_{name}")
        if function.result.kind == "double":
            compiled.restype = ctypes.c_double
            return int(struct.unpack("<Q", struct.pack("<d", compiled(*given)))[0])
        compiled.restype = kinds[function.result.bits]
        result = compiled(*given)
        return int(result.high << 64 | result.low) if isinstance(result, Wide) else int(result)

    def term(self, name: str, symbols: int | None) -> tuple[Outcome, list[z3.BitVecRef]]:
        """The term, and its arguments; the number of symbols is a constant in it."""
        arguments = []
        for parameter in self.modules[0].function(f"@proof_{name}").parameters:
            if parameter.name in ("%channel.1", "%alphabet"):
                arguments.append(z3.BitVecVal(symbols, 8))
            else:
                arguments.append(z3.BitVec(str(parameter.name), parameter.type.bits))
        return execute(self.modules, f"proof_{name}", list(arguments)), arguments

    def compare(self, name: str, symbols: int | None = None, rounds: int = ROUNDS) -> None:
        source = random.Random(f"{name} {symbols}")
        outcome, arguments = self.term(name, symbols)
        for _ in range(rounds):
            values = [self.some(source, argument, symbols) for argument in arguments]
            pairs = [
                (argument, z3.BitVecVal(value, argument.size()))
                for argument, value in zip(arguments, values, strict=True)
                if not z3.is_bv_value(argument)
            ]
            # No result that is free matters.
            pairs += [
                (z3.BitVec(f"any.{free.what}.{number}", free.result.size()), z3.BitVecVal(0, free.result.size()))
                for number, free in enumerate(outcome.free)
            ]
            with self.subTest(name=name, symbols=symbols, values=values):
                self.assertEqual(number_of(outcome.bits, pairs), self.call(name, values))
                self.assertFalse(number_of(outcome.broken(), pairs))

    @staticmethod
    def some(source: random.Random, argument: z3.BitVecRef, symbols: int | None) -> int:
        """An argument within the hypotheses of the theorems."""
        name = str(argument).removeprefix("%")
        if z3.is_bv_value(argument):
            return int(argument.as_long())
        if name in ("floor", "channel.0", "share"):
            return max(1, some_word(source) % (((1 << 64) - 1) // (symbols or 2) + 1))
        if name in ("level", "reward"):
            return some_level(source)
        if name == "x":
            return some_double(source)
        if name == "epsilon":
            return some_epsilon(source)
        if name == "units":
            return source.choice([0, 1, 1 << 20, -(1 << 20), source.randrange(-(1 << 20), 1 << 20)]) % (1 << 32)
        if name == "n":
            return source.randrange(2, 256)
        if name == "sum":
            return some_word(source) << 64 | some_word(source)
        if name == "stock":
            return source.randrange(4)
        if name == "truth":
            return source.randrange(symbols or 2)
        return some_word(source)

    def test_functions_of_a_bit(self) -> None:
        for name in ("floor_width", "threshold", "bit", "bit_draw", "bit_report", "level", "level_mirrored"):
            self.compare(name)

    def test_equal_words(self) -> None:
        """A draw takes its second word where random words never lead."""
        outcome, arguments = self.term("bit_draw", None)
        source = random.Random("equal")
        for _ in range(ROUNDS):
            whole, fraction, low = (some_word(source) for _ in range(3))
            values = [whole, fraction, whole, source.choice([low, fraction]), source.randrange(4)]
            pairs = [
                (argument, z3.BitVecVal(value, argument.size()))
                for argument, value in zip(arguments, values, strict=True)
            ]
            self.assertEqual(number_of(outcome.bits, pairs), self.call("bit_draw", values))

    def test_curves(self) -> None:
        self.compare("curve_linear")
        self.compare("curve_quadratic")

    def test_functions_of_symbols(self) -> None:
        for symbols in (2, 3, 4, 7, 16):
            for name in ("kary_truth", "kary_nearby", "kary_answer", "kary_draw"):
                self.compare(name, symbols, ROUNDS // 4)

    def test_bound(self) -> None:
        self.compare("series_step")
        self.compare("growth", rounds=ROUNDS // 4)

    def test_verify(self) -> None:
        self.compare("floor_verify", rounds=ROUNDS // 4)
        self.compare("kary_verify", 5, ROUNDS // 4)


class SmallPieces(unittest.TestCase):
    """What the translator knows, and what it refuses."""

    def run_text(self, text: str, *arguments: z3.BitVecRef) -> Outcome:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "piece.ll"
            path.write_text(text.replace("\n    ", "\n"))
            return execute([Module(path)], "f", list(arguments))

    def body(self, *lines: str, header: str = "i8 noundef %a, i8 noundef %b", result: str = "noundef i8") -> Outcome:
        text = f"define {result} @f({header}) {{\nstart:\n" + "".join(f"  {line}\n" for line in lines) + "}\n"
        arguments = [z3.BitVec(part.split()[-1][1:], 8) for part in header.split(",") if part]
        return self.run_text(text, *arguments)

    def assert_breaks(self, outcome: Outcome, expected: bool) -> None:
        solver = z3.Solver()
        solver.add(outcome.broken())
        self.assertEqual(solver.check() == z3.sat, expected)

    def test_poison_that_is_returned_is_found(self) -> None:
        for line in (
            "add nuw i8 %a, %b",
            "add nsw i8 %a, %b",
            "sub nuw i8 %a, %b",
            "sub nsw i8 %a, %b",
            "mul nuw i8 %a, 3",
            "mul nsw i8 %a, 3",
            "mul nuw i8 %a, %b",
            "mul nsw i8 %a, %b",
            "shl nuw i8 %a, 1",
            "shl nsw i8 %a, 1",
            "shl i8 %a, %b",
            "lshr i8 %a, %b",
            "ashr exact i8 %a, 1",
            "lshr exact i8 %a, 1",
            "or disjoint i8 %a, %b",
            "call i8 @llvm.umax.i8(i8 range(i8 0, 9) %a, i8 %b)",
            "call range(i8 3, 5) i8 @llvm.umin.i8(i8 %a, i8 %b)",
            "call i8 @llvm.ctlz.i8(i8 %a, i1 true)",
            "add i8 %a, poison",
            "add i8 %a, undef",
        ):
            with self.subTest(line=line):
                self.assert_breaks(self.body(f"%x = {line}", "ret i8 %x"), True)

    def test_poison_of_comparisons_and_casts_is_found(self) -> None:
        for line in ("icmp samesign ult i8 %a, %b", "trunc nuw i8 %a to i1", "trunc nsw i8 %a to i1"):
            with self.subTest(line=line):
                self.assert_breaks(self.body(f"%x = {line}", "ret i1 %x", result="noundef i1"), True)
        outcome = self.body("%x = zext nneg i8 %a to i16", "ret i16 %x", result="noundef i16")
        self.assert_breaks(outcome, True)

    def test_poison_that_is_not_used_is_none(self) -> None:
        outcome = self.body(
            "%c = icmp ult i8 %a, 10",
            "%x = add nuw i8 %a, 200",
            "%y = select i1 %c, i8 %x, i8 %b",
            "%z = freeze i8 %x",
            "ret i8 %y",
        )
        self.assert_breaks(outcome, False)

    def test_duties_of_control_are_found(self) -> None:
        self.assert_breaks(self.body("unreachable"), True)
        assume = ("%c = icmp ne i8 %a, 0", "call void @llvm.assume(i1 %c)", "ret i8 %a")
        self.assert_breaks(self.body(*assume), True)
        panic = ("call void @_ZN4core9panicking5panic17h0E(i8 %a)", "unreachable")
        self.assert_breaks(self.body(*panic), True)
        self.assert_breaks(self.body("%x = udiv i8 %a, %b", "ret i8 %x"), True)
        self.assert_breaks(self.body("%x = udiv i8 %a, 3", "ret i8 %x"), False)
        self.assert_breaks(self.body("ret i8 %a", result="noundef range(i8 0, 9) i8"), True)
        branch = ("%x = add nuw i8 %a, %b", "%c = icmp eq i8 %x, 0", "br i1 %c, label %t, label %t")
        text = self.body(*branch, "\nt:", "ret i8 %a")
        self.assert_breaks(text, True)

    def test_loops_end_or_are_refused(self) -> None:
        text = (
            "define i8 @f(i8 %a) {\nstart:\n  br label %l\n\nl:\n"
            "  %i = phi i8 [ 0, %start ], [ %j, %l ]\n  %s = phi i8 [ %a, %start ], [ %t, %l ]\n"
            "  %t = add i8 %s, %i\n  %j = add i8 %i, 1\n  %c = icmp eq i8 %j, END\n"
            "  br i1 %c, label %e, label %l\n\ne:\n  ret i8 %t\n}\n"
        )
        a = z3.BitVec("a", 8)
        outcome = self.run_text(text.replace("END", "5"), a)
        self.assertEqual(number_of(outcome.bits, [(a, z3.BitVecVal(7, 8))]), 17)
        with self.assertRaises(RefusedError):
            self.run_text(text.replace("END", "%a"), a)

    def test_memory_is_bytes(self) -> None:
        outcome = self.body(
            "%m = alloca [4 x i8], align 4",
            "store i8 %a, ptr %m, align 4",
            "%n = getelementptr inbounds i8, ptr %m, i64 1",
            "store i8 %b, ptr %n, align 1",
            "%x = load i16, ptr %m, align 2",
            "ret i16 %x",
            result="noundef i16",
        )
        a, b = z3.BitVecs("a b", 8)
        self.assertEqual(number_of(outcome.bits, [(a, z3.BitVecVal(1, 8)), (b, z3.BitVecVal(2, 8))]), 0x201)
        self.assert_breaks(outcome, False)
        blank = ("%m = alloca [4 x i8], align 4", "%x = load i8, ptr %m, align 1", "ret i8 %x")
        self.assert_breaks(self.body(*blank), True)

    def test_vectors_are_numbers_side_by_side(self) -> None:
        lines = [
            "%m = alloca [2 x i8], align 2",
            "%v = insertelement <2 x i8> poison, i8 %a, i64 0",
            "%s = shufflevector <2 x i8> %v, <2 x i8> poison, <2 x i32> zeroinitializer",
            "%w = lshr <2 x i8> %s, <i8 1, i8 4>",
            "store <2 x i8> %w, ptr %m, align 2",
            "%x = load i16, ptr %m, align 2",
            "ret i16 %x",
        ]
        outcome = self.body(*lines, result="noundef i16")
        self.assertEqual(number_of(outcome.bits, [(z3.BitVec("a", 8), z3.BitVecVal(0xFE, 8))]), 0x0F7F)
        self.assert_breaks(outcome, False)
        lines[2] = "%s = shufflevector <2 x i8> %v, <2 x i8> poison, <2 x i32> <i32 0, i32 1>"
        self.assert_breaks(self.body(*lines, result="noundef i16"), True)

    def test_what_is_not_known_is_refused(self) -> None:
        memory = "%m = alloca [4 x i8], align 4"
        for lines in (
            ("%x = sdiv i8 %a, %b", "ret i8 %x"),
            ("%x = udiv exact i8 %a, 3", "ret i8 %x"),
            ("%x = add nuw mystery i8 %a, %b", "ret i8 %x"),
            ("%x = call i8 @g(i8 %a)", "ret i8 %x"),
            ("%x = call i8 @llvm.bitreverse.i8(i8 %a)", "ret i8 %x"),
            ("%x = add <2 x i8> %a, %b", "ret i8 %x"),
            ("%x = insertelement <2 x i8> poison, i8 %a, i8 %b", "ret i8 %a"),
            ("%x = extractelement <2 x i8> <i8 1, i8 2>, i64 0", "ret i8 %x"),
            ("%x = icmp eq <2 x i8> <i8 1, i8 2>, zeroinitializer", "ret i8 %a"),
            ("%x = add i8 %a, %b, !mystery !1", "ret i8 %x"),
            ("%x = fmul fast double 1.0, 2.0", "ret i8 %a"),
            ("%x = fptoui double 1.0 to i8", "ret i8 %x"),
            ("%x = load i8, ptr @global, align 1", "ret i8 %x"),
            (memory, "%x = load i64, ptr %m, align 1", "ret i8 %a"),
            (memory, "%x = load i32, ptr %m, align 8", "ret i8 %a"),
            (memory, "%x = load volatile i8, ptr %m, align 1", "ret i8 %a"),
            (memory, "%n = getelementptr inbounds i8, ptr %m, i64 5", "ret i8 %a"),
            ("%x = atomicrmw add ptr null, i8 1 seq_cst", "ret i8 %x"),
            ("invoke void @g() to label %start unwind label %start",),
        ):
            with self.subTest(lines=lines), self.assertRaises(RefusedError):
                self.body(*lines)

    def test_doubles_compare_as_python_compares_them(self) -> None:
        source = random.Random("doubles")
        a, b = z3.BitVecs("a b", 64)
        predicates: dict[str, Callable[[float, float], bool]] = {
            "oeq": lambda x, y: x == y,
            "olt": lambda x, y: x < y,
            "oge": lambda x, y: x >= y,
            "ult": lambda x, y: not x >= y,
            "ugt": lambda x, y: not x <= y,
            "une": lambda x, y: x != y,
            "uno": lambda x, y: math.isnan(x) or math.isnan(y),
        }
        for _ in range(ROUNDS):
            bits = [some_double(source), some_double(source)]
            x, y = (struct.unpack("<d", struct.pack("<Q", of))[0] for of in bits)
            pairs = [(a, z3.BitVecVal(bits[0], 64)), (b, z3.BitVecVal(bits[1], 64))]
            for predicate, expected in predicates.items():
                self.assertEqual(number_of(compare_doubles(predicate, a, b), pairs), expected(x, y))


if __name__ == "__main__":
    unittest.main()
