#!/usr/bin/env python3
"""Compiles the privacy kernel and proves the theorems about it.

    prove.py [--all] [--target-dir FOLDER]

Without `--all` for this machine only: as a release is compiled, and with checks of overflow.
"""

from __future__ import annotations

import argparse
import hashlib
import multiprocessing
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import lemmas
from compile import CHECKED, RELEASE, ROOT, VARIANTS, Variant, build, is_there
from execute import ANY_RESULT, PANICS
from ir import Module, RefusedError
from theorems import Failure, Kernel, ShapeError, check, groups, theorems

# A theorem takes a second or so. One that takes minutes is no theorem for every change.
MILLISECONDS = 120_000
PAGE = ROOT / "docs/proofs.md"


def prove_group(job: tuple[list[Path], str, int | None, bool]) -> tuple[int, str]:
    """Proves a group of theorems: how many they are, and what was not proved."""
    files, group, k, is_about_faults = job
    count = 0
    try:
        for theorem in theorems(Kernel([Module(path) for path in files]), group, k):
            if is_about_faults and not theorem.is_about_faults:
                continue
            check(theorem, MILLISECONDS)
            count += 1
    except (Failure, RefusedError, ShapeError) as error:
        return count, f"{group}{'' if k is None else f', k = {k}'}: {error}"
    return count, ""


def prove(variant: Variant, modules: list[Module], pool: multiprocessing.pool.Pool) -> tuple[int, list[str]]:
    """Proves all theorems about the files of IR."""
    files = [module.path for module in modules]
    chosen = [(group, k) for group, k in groups() if group not in variant.left_out]
    jobs = [(files, group, k, variant.is_about_faults) for group, k in chosen]
    # Those of large alphabets first: they take longest.
    jobs.sort(key=lambda job: -(job[2] or 17))
    results = list(pool.imap_unordered(prove_group, jobs))
    return sum(count for count, _ in results), [fault for _, fault in results if fault]


def reached(modules: list[Module]) -> list[str]:
    """The texts of the functions that are proved, and of all that they call, where it is known."""
    names = sorted(name for name in modules[0].starts if name.startswith("@proof_"))
    texts = []
    while names:
        name = names.pop(0)
        module = next((module for module in modules if name in module.starts), None)
        if module is None or any(part in name for part in (*ANY_RESULT, *PANICS)):
            continue
        text = module.source(name)
        if text not in texts:
            texts.append(text)
            names += re.findall(r"call [^\n]*?(@(?:\"[^\"]*\"|[-\w.$]+))\(", text)
    return texts


def digest(modules: list[Module]) -> str:
    """The SHA-256 of these texts, without numbers and hashes of names, which the same code may have others of."""
    noise = re.compile(
        r"17h[0-9a-f]{16}E|(?<=Cs)[0-9A-Za-z]+_|(?<=@alloc_)[0-9a-f]+|(?<=@anon\.)[0-9a-f.]+|#\d+|(?<=[ (])![0-9]+"
    )
    plain = sorted(noise.sub("", text) for text in reached(modules))
    return hashlib.sha256("\n".join(plain).encode()).hexdigest()


def compiler() -> str:
    text = subprocess.check_output(["rustc", "-vV"], text=True, cwd=ROOT)
    found = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
    return f"rustc {found['release']} ({found['commit-hash'][:9]}), LLVM {found['LLVM version']}"


def compare_page(variant: Variant, line: str) -> str:
    """What is wrong with the page's line of a variant; nothing if it is of another compiler."""
    page = PAGE.read_text()
    if compiler() not in page:
        print(f"{PAGE.name} is about another compiler than {compiler()}: its figures are not compared")
        return ""
    return "" if line in page else f"{PAGE.name} says something else of {variant.name} than: {line}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", action="store_true", help="all targets, each of which must be there")
    parser.add_argument("--target-dir", type=Path, default=ROOT / "target/proof")
    arguments = parser.parse_args()
    chosen = VARIANTS if arguments.all else (RELEASE, CHECKED)
    for lemma in lemmas.LEMMAS:
        lemma.prove()
    print(f"{len(lemmas.LEMMAS)} lemmas are proved; {compiler()}", flush=True)
    faults = [f"no core library for {variant.target}" for variant in chosen if not is_there(variant)]
    with multiprocessing.Pool(os.cpu_count()) as pool, ThreadPoolExecutor(1) as builder:
        # One is compiled while the one before it is proved.
        there = [variant for variant in chosen if is_there(variant)]
        built = [builder.submit(build, variant, arguments.target_dir.resolve()) for variant in there]
        for variant, coming in zip(there, built, strict=True):
            modules = coming.result()
            begin = time.monotonic()
            count, found = prove(variant, modules, pool)
            faults += [f"{variant.name}: {fault}" for fault in found]
            line = f"| {variant.name} | {count} | `{digest(modules)}` |"
            faults += filter(None, [compare_page(variant, line)])
            print(f"{line} proved in {time.monotonic() - begin:.0f} s", flush=True)
    for fault in faults:
        print(f"not proved: {fault}", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
