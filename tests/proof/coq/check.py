#!/usr/bin/env python3
"""Checks the Coq proofs: from the solver's theorems to the privacy of a device's whole life.

    check.py             compiles and checks them, with the axioms that they may use
    check.py --mutants   changes them in one place at a time, and requires that a proof fails

A proof is compiled by `coqc` and checked again by `coqchk`, which is a program of its own. The library of Coq is
taken as it was installed. The main theorems use the axioms in `axioms.txt`, and no other. What the proofs quote
of the sources must be there: names of the solver's theorems, and functions of the client.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

SOURCES = Path(__file__).resolve().parent
ROOT = SOURCES.parents[2]
# In the order in which they need each other.
MODULES = ("Channel", "Growth", "Life", "Device")
THEOREMS = (
    "Channel.bit_is_private",
    "Channel.kary_is_private",
    "Channel.law_total",
    "Growth.growth_is_below",
    "Growth.verified",
    "Life.what_ends_admits_less",
    "Life.chance_total",
    "Life.window_is_private",
    "Life.lifetime_is_private",
    "Device.price_is_rounded_up",
    "Device.bit_mechanism",
    "Device.kary_mechanism",
    "Device.premises_can_be_met",
)
# Where the functions are that comments name, such as `Ledger::hear`.
FUNCTIONS = {
    "Ledger": "client/src/ledger.rs",
    "Budget": "client/src/budget.rs",
    "Dropped": "client/src/ledger/dropped.rs",
    "NanoNats": "shared/src/accounting/nano_nats.rs",
    "Specification": "shared/src/specification/price.rs",
}


# The functions and constants that `Life.v` is a model of, and the digest of their text when the two were last
# compared.
COMPARED = {
    "client/src/ledger.rs": ("DAY_SKEW", "is_lie_before", "is_news", "hear", "add", "spent", "admits", "debit"),
    "client/src/ledger/dropped.rs": ("debits", "add", "hear"),
    "client/src/budget.rs": ("WINDOW_DAYS_MAX", "new", "has_room"),
    "client/src/debit.rs": ("ZERO", "unshuffled", "saturating_add", "saturating_sub", "min"),
    "client/src/outbox.rs": ("sealed",),
    "client/src/core/state.rs": ("draw", "settled", "hear_day", "opt_out"),
    "client/src/core/experiment.rs": ("begin", "end", "dated"),
    "shared/src/accounting/nano_nats.rs": (
        "of_decimal",
        "from_epsilon",
        "cap",
        "saturating_add",
        "saturating_sub",
        "ceiling_of_nats",
    ),
    "shared/src/specification/price.rs": ("price", "keeps"),
}
DIGEST = "6e496c8e251670cc"


class Failure(Exception):
    """What is wrong with the proofs."""


def run(folder: Path, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program, "-Q", ".", "Bandana", *arguments], cwd=folder, capture_output=True, text=True)


def compile_all(folder: Path, modules: tuple[str, ...] = MODULES) -> None:
    for module in modules:
        done = run(folder, "coqc", f"{module}.v")
        if done.returncode != 0:
            raise Failure(done.stderr.strip())


def check_axioms(folder: Path) -> int:
    """The main theorems use the axioms of the list, and all of them."""
    lines = [f"From Bandana Require {' '.join(MODULES)}."]
    lines += [f"Definition theorems := ({', '.join('@' + name for name in THEOREMS)}).", "Print Assumptions theorems."]
    (folder / "Axioms.v").write_text("\n".join(lines))
    done = run(folder, "coqc", "Axioms.v")
    if done.returncode != 0:
        raise Failure(done.stderr.strip())
    # Each axiom's name begins a line. Types are indented, or follow after a colon.
    found = {line.split()[0] for line in done.stdout.splitlines() if line[:1].strip() and line != "Axioms:"}
    allowed = set((SOURCES / "axioms.txt").read_text().split())
    if found != allowed:
        raise Failure(f"axioms: {sorted(found - allowed)} are new, and {sorted(allowed - found)} are not used")
    return len(found)


def check_again(folder: Path) -> None:
    modules = [part for module in MODULES for part in ("-norec", f"Bandana.{module}")]
    done = run(folder, "coqchk", "-silent", *modules)
    if done.returncode != 0:
        raise Failure(f"coqchk: {done.stdout.strip()} {done.stderr.strip()}")


def check_quotes() -> int:
    """What comments quote is there: parts of the solver's theorems after their function, and functions."""
    theorems = " ".join((SOURCES.parent / "theorems.py").read_text().split())
    quotes = 0
    for module in MODULES:
        text = " ".join((SOURCES / f"{module}.v").read_text().split())
        for quote in re.findall(r'"[a-z-]+: ([^"]+)"', text):
            if quote not in theorems:
                raise Failure(f"{module}.v quotes a theorem that is not in theorems.py: {quote}")
            quotes += 1
        for owner, name in re.findall(r"\b([A-Z]\w+)::(\w+)", text):
            if not re.search(rf"\b(fn|const) {name}\b", (ROOT / FUNCTIONS[owner]).read_text()):
                raise Failure(f"{module}.v names {owner}::{name}, which is not in {FUNCTIONS[owner]}")
            quotes += 1
    return quotes


def texts(text: str, name: str) -> list[str]:
    """All functions and constants of a name, without comments and white space."""
    function = rf"^( *)((?:pub\S* )?(?:const )?fn {name}\(.*?^\1\}})$"
    found = [body for _, body in re.findall(function, text, re.MULTILINE | re.DOTALL)]
    found += re.findall(rf"\bconst {name}: .*?;", text)
    return ["".join(re.sub(r"//.*", "", body).split()) for body in found]


def check_model() -> None:
    """The ledger in the sources is the one that `Life.v` was compared with."""
    bodies = []
    for file, names in COMPARED.items():
        text = (ROOT / file).read_text()
        for name in names:
            found = texts(text, name)
            if not found:
                raise Failure(f"{file} has no {name}, of which Life.v is a model")
            bodies += found
    digest = hashlib.sha256("\n".join(bodies).encode()).hexdigest()[:16]
    if digest != DIGEST:
        raise Failure(
            f"one of these has changed: {COMPARED}. Compare them with Life.v, change Life.v if they do something else "
            f"now, and set DIGEST in check.py to {digest}"
        )


@dataclass(frozen=True)
class Mutant:
    """A change that makes a theorem false: in a module, a text that is there once, and what takes its place."""

    what: str
    module: str
    old: str
    new: str


MUTANTS = [
    # What the solver proves, said too weakly.
    Mutant("the threshold may be 0", "Channel", "(forall r, t * words <= threshold r", "(forall r, 0 <= threshold r"),
    Mutant("it may be 2^128", "Channel", "threshold r <= words * words - t * words)", "threshold r <= words * words)"),
    Mutant(
        "the bit is 1 if u = T",
        "Channel",
        "<-> u * words + v < threshold r) ->",
        "<-> u * words + v <= threshold r) ->",
    ),
    Mutant("a floor of 2t", "Channel", "<= IZR t * x)%R /\\", "<= IZR (2 * t) * x)%R /\\"),
    Mutant("the bound is e^ε", "Channel", "(x <= exp ε - 1)%R.", "(x <= exp ε)%R."),
    Mutant("a symbol too many", "Channel", "(IZR (words - k * t) <=", "(IZR (words - (k + 1) * t) <="),
    Mutant("some words lead anywhere", "Channel", "is_word v -> (k - 1) * t <= v ->", "is_word v -> k * t <= v ->"),
    Mutant(
        "levels of k + 1",
        "Channel",
        "is_word u -> 0 <= nearby r u < k) ->",
        "is_word u -> 0 <= nearby r u <= k) ->",
    ),
    # The bound of e^ε - 1.
    Mutant("a step is rounded up", "Growth", "/ (2 ^ 58 * n).", "/ (2 ^ 58 * n) + 1."),
    Mutant("ε is rounded up", "Growth", "digits * 2 ^ 58 / 2 ^ scale.", "digits * 2 ^ 58 / 2 ^ scale + 1."),
    Mutant("each step divides by one less", "Growth", "(100 - Z.of_nat k)\n", "(99 - Z.of_nat k)\n"),
    Mutant("the mantissa is rounded up", "Growth", "/ 2 ^ drop) / 2 ^ 53, Z", "/ 2 ^ drop) / 2 ^ 53 + 1, Z"),
    Mutant("a binary place is lost", "Growth", "53, Z.max (scale + 11 - drop) 0)", "53, Z.max (scale + 10 - drop) 0)"),
    Mutant("a width is compared with 2 t x", "Growth", "<=? t * mantissa).", "<=? 2 * t * mantissa)."),
    # Prices, and the rule of the ledger.
    Mutant("a price is cut", "Device", "0 + (2 ^ scale - 1)) / 2 ^ scale.\n\n", "0) / 2 ^ scale.\n\n"),
    Mutant("a sum may end at the cap", "Life", "price -> cap < 2 ^ 64 - 1 ->", "price -> cap <= 2 ^ 64 - 1 ->"),
    Mutant("a price is rounded down", "Life", "(ε * 1000000000 <= IZR price)%R", "(IZR price <= ε * 1000000000)%R"),
    Mutant(
        "the window is a day short",
        "Life",
        "undated ledger + since (today ledger - (window_days budget - 1))",
        "undated ledger + since (today ledger - (window_days budget - 2))",
    ),
    Mutant("debits without a day are left out", "Life", "  undated ledger + since (today", "  since (today"),
    Mutant(
        "the last report is not counted",
        "Life",
        "spent_in_window budget ledger + price <=?",
        "spent_in_window budget ledger <=?",
    ),
    Mutant("it is not counted in a lifetime", "Life", "(lifetime ledger + price <=?", "(lifetime ledger <=?"),
    Mutant("a debit has its day at once", "Life", "undated := undated ledger + price;", "undated := undated ledger;"),
    Mutant("a debit gets the day before", "Life", "((last, settled) :: kept)", "((last - 1, settled) :: kept)"),
    Mutant("a day is forgotten too early", "Life", "last - (longest - 1) <=? d)", "last - (longest - 2) <=? d)"),
    Mutant("what had a false day is forgotten", "Life", "((day, total snd (", "((day, 0 * total snd ("),
    Mutant(
        "a report leaves before it is paid for on the disk",
        "Life",
        "saved := Some _ |} => Some m",
        "saved := _ |} => Some m",
    ),
    Mutant(
        "a crash loses the ledger",
        "Life",
        "device := disk world; disk",
        "device := {| lifetime := 0; undated := 0; days := []; today := 0 |}; disk",
    ),
    Mutant(
        "a report that still waits gets a day",
        "Life",
        "settled i = true -> is_over day e) /\\",
        "settled i = true -> True) /\\",
    ),
    Mutant("a day of the future", "Life", "  day <= now /\\", "  day <= now + 1 /\\"),
    Mutant(
        "users differ a day before the window",
        "Life",
        "day < first \\/ last < day ->",
        "day < first - 1 \\/ last < day ->",
    ),
]


def is_caught(mutant: Mutant, compiled: Path) -> bool:
    """Whether a proof fails: not a definition, and not for a name or for the syntax."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        place = MODULES.index(mutant.module)
        for module in MODULES:
            shutil.copy(compiled / f"{module}.v", folder)
        for module in MODULES[:place]:
            shutil.copy(compiled / f"{module}.vo", folder)
        text = (folder / f"{mutant.module}.v").read_text()
        if text.count(mutant.old) != 1:
            raise Failure(f"{mutant.what}: its text is there {text.count(mutant.old)} times")
        (folder / f"{mutant.module}.v").write_text(text.replace(mutant.old, mutant.new))
        try:
            compile_all(folder, MODULES[place:])
        except Failure as failure:
            said = str(failure)
            where = re.match(r'File "\./(\w+)\.v", line (\d+)', said)
            if where is None or "Syntax error" in said or "was not found in the current" in said:
                raise Failure(f"{mutant.what}: {said}") from failure
            lines = (folder / f"{where[1]}.v").read_text().splitlines()
            before = "\n".join(lines[: int(where[2])])
            return before.rfind("Proof.") > before[: before.rfind("\n")].rfind("Qed.")
        return False


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mutants", action="store_true")
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for module in MODULES:
            shutil.copy(SOURCES / f"{module}.v", folder)
        try:
            compile_all(folder)
            if arguments.mutants:
                with ThreadPoolExecutor(arguments.jobs) as pool:
                    caught = list(pool.map(lambda mutant: is_caught(mutant, folder), MUTANTS))
                for mutant, one in zip(MUTANTS, caught, strict=True):
                    print(f"{'caught' if one else 'MISSED'}: {mutant.module}.v: {mutant.what}")
                print(f"{sum(caught)} of {len(MUTANTS)} mutants are caught")
                return 0 if all(caught) else 1
            axioms = check_axioms(folder)
            check_again(folder)
            quotes = check_quotes()
            check_model()
        except Failure as failure:
            print(failure, file=sys.stderr)
            return 1
    print(f"{len(THEOREMS)} theorems are proved in Coq, from {axioms} axioms; {quotes} quotes of the sources are true")
    return 0


if __name__ == "__main__":
    sys.exit(main())
