#!/usr/bin/env python3
"""Changes the privacy kernel in one place at a time, and requires that a proof fails.

    mutants.py [--only TEXT] [--target-dir FOLDER]

Changes are made in a copy of the sources, which is compiled. One is caught if the solver finds that a theorem
of its group does not hold of what the compiler emits then. A proof that is refused or runs out of time does not
count. Changes of functions that have nothing to do with each other are compiled together.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from queue import Queue

from compile import CHECKED, RELEASE, ROOT, Variant

BIT = "shared/src/channel/bit.rs"
KARY = "shared/src/channel/kary.rs"
SHARE = "shared/src/channel/share.rs"
GROWTH = "shared/src/channel/growth.rs"
CURVE = "shared/src/curve.rs"
REWARDS = "shared/src/rewards.rs"


# Groups of theorems about functions that call each other, or that call the same function.
KINDRED = (
    ("width_of_floor", "threshold"),
    ("bit",),
    ("floor_verified", "kary_verify", "kary_truth"),
    ("series_step", "growth"),
    ("kary_nearby",),
    ("kary_category",),
    ("kary_answer",),
    ("kary_draw",),
    ("levels", "range_level", "exponential"),
    ("linear",),
    ("quadratic",),
)


@dataclass(frozen=True)
class Mutant:
    """One change: in a file, a text that is there once, and what takes its place."""

    group: str
    file: str
    old: str
    new: str
    variant: Variant = RELEASE

    def __str__(self) -> str:
        return f"{self.file}: {' '.join(self.old.split())} -> {' '.join(self.new.split())}"

    def apply(self, root: Path) -> None:
        text = (root / self.file).read_text()
        if text.count(self.old) != 1:
            raise ValueError(f"{self} is there {text.count(self.old)} times")
        (root / self.file).write_text(text.replace(self.old, self.new))


MUTANTS = (
    # The width of a floor.
    Mutant("width_of_floor", BIT, "0_u64.wrapping_sub(self.0 << 1)", "0_u64.wrapping_sub(self.0)"),
    Mutant("width_of_floor", BIT, "0_u64.wrapping_sub(self.0 << 1)", "1_u64.wrapping_sub(self.0 << 1)"),
    Mutant("width_of_floor", BIT, "0_u64.wrapping_sub(self.0 << 1)", "0_u64.wrapping_add(self.0 << 1)"),
    Mutant("width_of_floor", BIT, "0_u64.wrapping_sub(self.0 << 1)", "0_u64 - (self.0 << 1)", CHECKED),
    # The threshold, line by line.
    Mutant("threshold", BIT, "(self.0, 0_u64.wrapping_sub(self.0));", "(self.0 - 1, 0_u64.wrapping_sub(self.0));"),
    Mutant("threshold", BIT, "(self.0, 0_u64.wrapping_sub(self.0));", "(self.0, 1_u64.wrapping_sub(self.0));"),
    Mutant("threshold", BIT, "(self.0, 0_u64.wrapping_sub(self.0));", "(self.0, 0 - self.0);", CHECKED),
    Mutant("threshold", BIT, "(self.0, 0_u64.wrapping_sub(self.0));", "(self.0, u64::MAX);"),
    Mutant(
        "threshold",
        BIT,
        "u128::from(level.get()) * u128::from(self.width())",
        "u128::from(level.get()) * u128::from(self.0)",
    ),
    Mutant(
        "threshold",
        BIT,
        "u128::from(level.get()) * u128::from(self.width())",
        "u128::from(level.get().wrapping_mul(self.width()))",
    ),
    Mutant(
        "threshold",
        BIT,
        "u128::from(level.get()) * u128::from(self.width())",
        "u128::from(level.get()) * u128::from(self.width() - 1)",
    ),
    Mutant("threshold", BIT, "(rise >> 53) as u64", "(rise >> 52) as u64"),
    Mutant("threshold", BIT, "(rise >> 53) as u64", "(rise >> 54) as u64"),
    Mutant("threshold", BIT, "lowest.wrapping_add((rise >> 53) as u64)", "lowest.wrapping_sub((rise >> 53) as u64)"),
    Mutant("threshold", BIT, "lowest.wrapping_add((rise >> 53) as u64)", "lowest + ((rise >> 53) as u64)", CHECKED),
    Mutant("threshold", BIT, "        let whole = select_unpredictable(whole < lowest, lowest, whole);\n", ""),
    Mutant("threshold", BIT, "whole < lowest, lowest, whole", "whole > lowest, lowest, whole"),
    Mutant("threshold", BIT, "        let whole = select_unpredictable(whole > highest, highest, whole);\n", ""),
    Mutant("threshold", BIT, "whole > highest, highest, whole", "whole < highest, highest, whole"),
    Mutant("threshold", BIT, "whole > highest, highest, whole", "whole > highest, lowest, whole"),
    Mutant("threshold", BIT, "(rise << 11) as u64", "(rise << 10) as u64"),
    Mutant("threshold", BIT, "(rise << 11) as u64", "(rise << 12) as u64"),
    Mutant("threshold", BIT, " * u64::from(whole != highest)", ""),
    Mutant("threshold", BIT, "u64::from(whole != highest)", "u64::from(whole != lowest)"),
    Mutant("threshold", BIT, "u64::from(whole != highest)", "u64::from(whole == highest)"),
    Mutant(
        "threshold", BIT, "Threshold { whole, fraction }\n    }", "Threshold { whole, fraction: 0 * fraction }\n    }"
    ),
    Mutant("threshold", BIT, "Threshold { whole, fraction }\n    }", "Threshold { whole: whole ^ 1, fraction }\n    }"),
    # The two ways to draw.
    Mutant("bit", BIT, "| u128::from(low)) < self.to_u128()", "| u128::from(low)) <= self.to_u128()"),
    Mutant("bit", BIT, "| u128::from(low)) < self.to_u128()", "| u128::from(low)) > self.to_u128()"),
    Mutant("bit", BIT, "((u128::from(high) << 64) | u128::from(low))", "((u128::from(low) << 64) | u128::from(high))"),
    Mutant("bit", BIT, "((u128::from(high) << 64) | u128::from(low))", "(u128::from(high) << 64)"),
    Mutant("bit", BIT, "let high = word()?;", "let high = word()? | 1;"),
    Mutant("bit", BIT, "if high == self.whole {", "if high != self.whole {"),
    Mutant("bit", BIT, "if high == self.whole {", "if true {"),
    Mutant("bit", BIT, "if high == self.whole {", "if false {"),
    Mutant("bit", BIT, "Ok(word()? < self.fraction)", "Ok(word()? <= self.fraction)"),
    Mutant("bit", BIT, "Ok(word()? < self.fraction)", "Ok(high < self.fraction)"),
    Mutant("bit", BIT, "Ok(word()? < self.fraction)", "Ok(word().unwrap_or(0) < self.fraction)"),
    Mutant("bit", BIT, "Ok(high < self.whole)", "Ok(high > self.whole)"),
    Mutant("bit", BIT, "Ok(high < self.whole)", "Ok(high < self.fraction)"),
    Mutant(
        "bit",
        BIT,
        "(u128::from(self.whole) << 64) | u128::from(self.fraction)",
        "(u128::from(self.whole) << 63) | u128::from(self.fraction)",
    ),
    Mutant(
        "bit",
        BIT,
        "(u128::from(self.whole) << 64) | u128::from(self.fraction)",
        "(u128::from(self.fraction) << 64) | u128::from(self.whole)",
    ),
    # The check of a floor.
    Mutant("floor_verified", BIT, "Share::verify(floor, 2, epsilon)?", "Share::verify(floor, 1, epsilon)?"),
    Mutant("floor_verified", BIT, "Share::verify(floor, 2, epsilon)?", "Share::verify(floor, 3, epsilon)?"),
    Mutant("floor_verified", BIT, "Ok(Self(share.get()))", "Ok(Self(share.get() + 1))"),
    Mutant("floor_verified", SHARE, "if share == 0 || share > u64::MAX", "if share > u64::MAX"),
    Mutant("kary_verify", SHARE, "share == 0 || share > u64::MAX / u64::from(symbols)", "share == 0"),
    Mutant("kary_verify", SHARE, "share > u64::MAX / u64::from(symbols)", "share > u64::MAX / u64::from(symbols) + 1"),
    Mutant("floor_verified", SHARE, "covers(width, share)", "covers(width - 1, share)"),
    Mutant("floor_verified", SHARE, "covers(width, share)", "covers(width, share + 1)"),
    Mutant("floor_verified", SHARE, "covers(width, share)", "covers(share, width)"),
    Mutant("floor_verified", SHARE, "        if Growth::below", "        if !Growth::below"),
    Mutant(
        "floor_verified",
        SHARE,
        "            Ok(Self(share))\n        } else",
        "            Ok(Self(share ^ 1))\n        } else",
    ),
    Mutant(
        "kary_verify", SHARE, "share.wrapping_mul(u64::from(symbols)))", "share.wrapping_mul(u64::from(symbols) - 1))"
    ),
    Mutant("kary_verify", SHARE, "0_u64.wrapping_sub(share.wrapping_mul", "1_u64.wrapping_sub(share.wrapping_mul"),
    Mutant("floor_verified", GROWTH, "self.shift <= width.leading_zeros()\n            && ", ""),
    Mutant("floor_verified", GROWTH, "self.shift <= width.leading_zeros()", "self.shift <= 64"),
    Mutant("floor_verified", GROWTH, "(width << self.shift) <= u128", "(width >> self.shift) <= u128"),
    Mutant("floor_verified", GROWTH, "(width << self.shift) <= u128", "(width << self.shift) < u128"),
    Mutant("floor_verified", GROWTH, "(width << self.shift) <= u128", "(width << (self.shift - 1)) <= u128"),
    Mutant("floor_verified", GROWTH, "u128::from(self.mantissa)", "u128::from(self.mantissa + 1)"),
    # The lower bound of e^ε - 1.
    Mutant("series_step", GROWTH, "const ONE: u128 = 1 << 64;", "const ONE: u128 = 1 << 65;"),
    Mutant("series_step", GROWTH, "EPSILON_BITS: u32 = 58;", "EPSILON_BITS: u32 = 57;"),
    Mutant("series_step", GROWTH, "((sum >> EPSILON_BITS) as u64", "((sum >> (EPSILON_BITS - 1)) as u64"),
    Mutant("series_step", GROWTH, "sum as u64 & ((1 << EPSILON_BITS) - 1)", "sum as u64"),
    Mutant("series_step", GROWTH, "sum as u64 & ((1 << EPSILON_BITS) - 1)", "sum as u64 & (1 << EPSILON_BITS)"),
    Mutant("series_step", GROWTH, "u128::from(epsilon) * u128::from(part)", "u128::from(epsilon | 1) * u128::from(part)"),
    Mutant("series_step", GROWTH, "u128::from(epsilon) * u128::from(part)", "u128::from(epsilon.wrapping_mul(part))"),
    Mutant("series_step", GROWTH, "(product(high) + (product(low) >> EPSILON_BITS))", "product(high)"),
    Mutant("series_step", GROWTH, "(product(low) >> EPSILON_BITS)", "(product(low) >> (EPSILON_BITS - 1))"),
    Mutant("series_step", GROWTH, "(product(high) + (product", "(product(low) + (product"),
    Mutant("series_step", GROWTH, " / u128::from(n)", ""),
    Mutant("series_step", GROWTH, " / u128::from(n)", " / u128::from(n - 1)"),
    Mutant("series_step", GROWTH, "ONE + (product(high)", "(product(high)"),
    Mutant("series_step", GROWTH, "ONE + (product(high)", "1 + ONE + (product(high)"),
    Mutant("growth", GROWTH, "(bits & ((1 << 52) - 1)) | (1 << 52);", "bits & ((1 << 52) - 1);"),
    Mutant("growth", GROWTH, "(bits & ((1 << 52) - 1)) | (1 << 52);", "(bits & ((1 << 51) - 1)) | (1 << 52);"),
    Mutant("growth", GROWTH, "(bits & ((1 << 52) - 1)) | (1 << 52);", "(bits & ((1 << 52) - 1)) | (1 << 53);"),
    Mutant("growth", GROWTH, "1075_u32.saturating_sub", "1074_u32.saturating_sub"),
    Mutant("growth", GROWTH, "1075_u32.saturating_sub((bits >> 52) as u32)", "1075 - (bits >> 52) as u32", CHECKED),
    Mutant("growth", GROWTH, "(bits >> 52) as u32", "(bits >> 51) as u32"),
    Mutant("growth", GROWTH, "<< EPSILON_BITS) >> scale.min(127)", "<< (EPSILON_BITS + 1)) >> scale.min(127)"),
    Mutant("growth", GROWTH, "scale.min(127)) as u64", "scale.min(127)) as u64 + 1"),
    Mutant("growth", GROWTH, "scale.min(127)", "scale.min(63)"),
    Mutant("growth", GROWTH, "scale.min(127)", "scale", CHECKED),
    Mutant("growth", GROWTH, "const STEPS: u8 = 100;", "const STEPS: u8 = 99;"),
    Mutant("growth", GROWTH, "(2..=STEPS).rev()", "(2..=STEPS)"),
    Mutant("growth", GROWTH, "(2..=STEPS).rev()", "(1..STEPS).rev()"),
    Mutant("growth", GROWTH, "fold(ONE, ", "fold(ONE + 1, "),
    Mutant("growth", GROWTH, "Self::step(rounded, sum, n)", "Self::step(rounded, sum, n - 1)"),
    Mutant("growth", GROWTH, "Self::step(rounded, sum, n)", "Self::step(rounded | 1, sum, n)"),
    Mutant("growth", GROWTH, "Self::step(rounded, sum, n)", "Self::step(rounded, sum | 1, n)"),
    Mutant("growth", GROWTH, "64 - sum.leading_zeros()", "63 - sum.leading_zeros()"),
    Mutant("growth", GROWTH, "64 - sum.leading_zeros()", "65 - sum.leading_zeros()"),
    Mutant("growth", GROWTH, "(sum >> drop) as u64", "(sum >> drop) as u64 | 1"),
    Mutant("growth", GROWTH, "u128::from(digits) * u128::from(kept)", "u128::from(digits + 1) * u128::from(kept)"),
    Mutant("growth", GROWTH, "(product >> 53) as u64", "(product >> 52) as u64"),
    Mutant("growth", GROWTH, "(product >> 53) as u64", "(product >> 53) as u64 + 1"),
    Mutant("growth", GROWTH, "(scale + 11).saturating_sub(drop)", "(scale + 10).saturating_sub(drop)"),
    Mutant("growth", GROWTH, "(scale + 11).saturating_sub(drop)", "(scale + 11) - drop", CHECKED),
    Mutant(
        "kary_verify",
        KARY,
        "Share::verify(share, alphabet.len(), epsilon)?",
        "Share::verify(share, alphabet.len() - 1, epsilon)?",
    ),
    # k symbols.
    Mutant("kary_truth", KARY, "self.width() + self.share", "self.width()"),
    Mutant("kary_truth", KARY, "self.width() + self.share", "self.width() - self.share"),
    Mutant(
        "kary_nearby",
        KARY,
        "reward.get() * u64::from(self.alphabet.len() - 1)",
        "reward.get() * u64::from(self.alphabet.len())",
    ),
    Mutant("kary_nearby", KARY, "steps & ((1 << 53) - 1)", "steps & ((1 << 52) - 1)"),
    Mutant("kary_nearby", KARY, "steps & ((1 << 53) - 1)", "steps & ((1 << 53) - 2)"),
    Mutant("kary_nearby", KARY, "(word >> 11) < fraction", "(word >> 11) <= fraction"),
    Mutant("kary_nearby", KARY, "(word >> 11) < fraction", "(word >> 11) > fraction"),
    Mutant("kary_nearby", KARY, "(word >> 11) < fraction", "(word >> 12) < fraction"),
    Mutant("kary_nearby", KARY, "((steps >> 53) + above)", "((steps >> 52) + above)"),
    Mutant("kary_nearby", KARY, "((steps >> 53) + above)", "(steps >> 53)"),
    Mutant("kary_nearby", KARY, "((steps >> 53) + above)", "((steps >> 53) + above + above)"),
    Mutant("kary_category", KARY, ".min(self.alphabet.len() - 1)", ""),
    Mutant("kary_category", KARY, ".min(self.alphabet.len() - 1)", ".min(self.alphabet.len())"),
    Mutant("kary_answer", KARY, "let others = self.alphabet.len() - 1;", "let others = self.alphabet.len();"),
    Mutant("kary_answer", KARY, "let others = self.alphabet.len() - 1;", "let others = self.alphabet.len() - 2;"),
    Mutant("kary_answer", KARY, "word >= u64::from(multiple)", "word > u64::from(multiple)"),
    Mutant("kary_answer", KARY, "word >= u64::from(multiple)", "word < u64::from(multiple)"),
    Mutant("kary_answer", KARY, "u64::from(multiple) * self.share)", "u64::from(multiple) * (self.share - 1))"),
    Mutant("kary_answer", KARY, "u64::from(multiple) * self.share)", "u64::from(multiple + 1) * self.share)"),
    Mutant("kary_answer", KARY, "(1..=others)", "(0..=others)"),
    Mutant("kary_answer", KARY, "(1..=others)", "(1..others)"),
    Mutant("kary_answer", KARY, "(1..=others)", "(2..=others)"),
    Mutant("kary_answer", KARY, "number >= truth.get()", "number > truth.get()"),
    Mutant("kary_answer", KARY, "number >= truth.get()", "number < truth.get()"),
    Mutant("kary_answer", KARY, "number + u8::from(number >= truth.get())", "number"),
    Mutant("kary_answer", KARY, "number == others, truth.get(), other", "number != others, truth.get(), other"),
    Mutant("kary_answer", KARY, "number == others, truth.get(), other", "number == 0, truth.get(), other"),
    Mutant("kary_answer", KARY, "number == others, truth.get(), other", "number == others, other, truth.get()"),
    Mutant("kary_draw", KARY, "Ok(self.answer(truth, word()?))", "Ok(truth)"),
    Mutant(
        "kary_draw",
        KARY,
        "let truth = self.nearby_symbol(reward, word()?);\n        Ok(self.answer(truth, word()?))",
        "let u = word()?;\n        Ok(self.answer(self.nearby_symbol(reward, u), u))",
    ),
    Mutant("kary_draw", KARY, "Ok(self.answer(truth, word()?))", "Ok(self.answer(truth, word().unwrap_or(0)))"),
    # Levels.
    Mutant(
        "levels",
        CURVE,
        "if !(0.0..=1.0).contains(&x) {\n            return Err(LevelError);",
        "if !(0.0..1.0).contains(&x) {\n            return Err(LevelError);",
    ),
    Mutant(
        "levels",
        CURVE,
        "if !(0.0..=1.0).contains(&x) {\n            return Err(LevelError);",
        "if !(0.0..=2.0).contains(&x) {\n            return Err(LevelError);",
    ),
    Mutant(
        "levels",
        CURVE,
        "if !(0.0..=1.0).contains(&x) {\n            return Err(LevelError);",
        "if x < 0.0 || x > 1.0 {\n            return Err(LevelError);",
    ),
    Mutant("levels", CURVE, "let exponent = (bits >> 52) & 0x7ff;", "let exponent = (bits >> 52) & 0x3fe;"),
    Mutant(
        "levels",
        CURVE,
        "let mantissa = (bits & ((1 << 52) - 1)) | (1 << 52);",
        "let mantissa = bits & ((1 << 52) - 1);",
    ),
    Mutant(
        "levels",
        CURVE,
        "let mantissa = (bits & ((1 << 52) - 1)) | (1 << 52);",
        "let mantissa = (bits & ((1 << 51) - 1)) | (1 << 52);",
    ),
    Mutant("levels", CURVE, "1023_u64.saturating_sub(exponent).min(63)", "1022_u64.saturating_sub(exponent).min(63)"),
    Mutant("levels", CURVE, "1023_u64.saturating_sub(exponent).min(63)", "1023_u64.saturating_sub(exponent)"),
    Mutant("levels", CURVE, "1023_u64.saturating_sub(exponent).min(63)", "1023_u64.saturating_sub(exponent).min(31)"),
    Mutant("levels", CURVE, "Self(((mantissa << 1) >> shift)", "Self((mantissa >> shift)"),
    Mutant("levels", CURVE, "((mantissa << 1) >> shift).min(ONE)", "(((mantissa << 1) >> shift) + 1).min(ONE)"),
    Mutant("levels", CURVE, "Self(ONE.wrapping_sub(self.0))", "Self((ONE - 1).wrapping_sub(self.0))"),
    Mutant("levels", CURVE, "Self(ONE.wrapping_sub(self.0))", "self"),
    Mutant("range_level", CURVE, "((mantissa << 1) >> shift).min(ONE)", "((mantissa << 1) >> shift)"),
    Mutant("range_level", CURVE, ".min(ONE)", ".min(ONE + 1)"),
    Mutant("range_level", REWARDS, "if !self.contains(reward) {", "if self.contains(reward) {"),
    Mutant("range_level", REWARDS, "self.low <= reward && reward <= self.high", "self.low <= reward"),
    Mutant("range_level", REWARDS, "self.low <= reward && reward <= self.high", "self.low < reward && reward <= self.high"),
    # Curves.
    Mutant("linear", CURVE, "Shape::Identity => reward,", "Shape::Identity => reward.mirrored(),"),
    Mutant("quadratic", CURVE, "i128::from(reward.0);", "i128::from(reward.0 | 1);"),
    Mutant(
        "quadratic", CURVE, "(units * (r * (i128::from(ONE) - r))) >> 73", "(units * (r * (i128::from(ONE) - r))) >> 72"
    ),
    Mutant(
        "quadratic", CURVE, "(units * (r * (i128::from(ONE) - r))) >> 73", "(units * (r * (i128::from(ONE) - r))) >> 74"
    ),
    Mutant("quadratic", CURVE, "(i128::from(ONE) - r)", "(i128::from(ONE) + r)"),
    Mutant("quadratic", CURVE, "Level((r - bend) as u64)", "Level((r + bend) as u64)"),
    Mutant("quadratic", CURVE, "Level((r - bend) as u64)", "Level((r - bend + 1) as u64)"),
    Mutant("quadratic", CURVE, "<= Self::UNITS_MAX.unsigned_abs()", "< Self::UNITS_MAX.unsigned_abs()"),
    Mutant("quadratic", CURVE, "<= Self::UNITS_MAX.unsigned_abs()", "<= 2 * Self::UNITS_MAX.unsigned_abs()"),
    Mutant("exponential", CURVE, "Level(ONE - Level::of_checked_unit", "Level(2 * ONE - Level::of_checked_unit"),
)


def copy_sources(to: Path) -> None:
    """The files that git knows, as they are now."""
    shutil.rmtree(to, ignore_errors=True)
    names = subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).splitlines()
    for name in names:
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_file():
            shutil.copy(ROOT / name, to / name)


def batches(mutants: list[Mutant]) -> list[list[Mutant]]:
    """Mutants that are compiled together: of kindred groups no two."""
    rows: list[list[Mutant]] = []
    for variant in dict.fromkeys(mutant.variant for mutant in mutants):
        columns = [
            [mutant for mutant in mutants if mutant.variant == variant and mutant.group in kindred]
            for kindred in KINDRED
        ]
        rows += [[one for one in row if one is not None] for row in zip_longest(*columns)]
    return rows


def judge(batch: list[Mutant], root: Path, target: Path) -> list[str]:
    """What becomes of each mutant of a batch: by a process of its own, since z3 is for one thread."""
    try:
        for mutant in batch:
            mutant.apply(root)
        command = [sys.executable, str(Path(__file__).with_name("judge.py")), str(root), str(target)]
        command += [batch[0].variant.name, *(mutant.group for mutant in batch)]
        done = subprocess.run(command, capture_output=True, text=True)
    finally:
        for mutant in batch:
            shutil.copy(ROOT / mutant.file, root / mutant.file)
    said = done.stdout.splitlines()
    return said if len(said) == len(batch) else [f"error: {done.stderr.strip()[-2000:]}"] * len(batch)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="mutants with this text")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--target-dir", type=Path, default=ROOT / "target/proof-mutants")
    arguments = parser.parse_args()
    folder = arguments.target_dir.resolve()
    places: Queue[int] = Queue()
    for place in range(arguments.jobs):
        copy_sources(folder / f"sources-{place}")
        places.put(place)

    def run(batch: list[Mutant]) -> int:
        place = places.get()
        try:
            said = judge(batch, folder / f"sources-{place}", folder / f"target-{place}")
        finally:
            places.put(place)
        for mutant, one in zip(batch, said, strict=True):
            print(f"{one}: {mutant}", flush=True)
        return sum(one.startswith("caught") for one in said)

    chosen = [mutant for mutant in MUTANTS if arguments.only in str(mutant)]
    with ThreadPoolExecutor(arguments.jobs) as pool:
        caught = sum(pool.map(run, batches(chosen)))
    print(f"{caught} of {len(chosen)} mutants are caught")
    return 0 if caught == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
