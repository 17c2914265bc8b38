"""Judges mutants: `judge.py SOURCES TARGET VARIANT GROUP...`.

Compiles the sources, and says in a line for each group which of its theorems does not hold.
"""

from __future__ import annotations

import sys
from pathlib import Path

from compile import VARIANTS, build
from ir import Module, RefusedError
from theorems import Failure, Kernel, ShapeError, check, groups, theorems

MILLISECONDS = 60_000


def first_failure(modules: list[Module], group: str, k: int | None) -> str:
    """The first theorem of a group that does not hold, or what else is wrong; nothing if all hold."""
    try:
        for theorem in theorems(Kernel(modules), group, k):
            check(theorem, MILLISECONDS)
    except Failure as failure:
        return f"caught, {failure.theorem}" if failure.is_disproved else f"undecided, {failure}"
    except ShapeError as error:
        return f"caught by its shape, {error}"
    except RefusedError as error:
        return f"refused, {error}"
    return ""


def verdict(modules: list[Module], group: str) -> str:
    """What becomes of a mutant."""
    others = "all theorems hold"
    for name, k in groups():
        if name != group:
            continue
        said = first_failure(modules, group, k)
        if said.startswith("caught"):
            return said
        others = said or others
    return others


def main() -> None:
    sources, target, name, *chosen = sys.argv[1:]
    variant = next(variant for variant in VARIANTS if variant.name == name)
    modules = build(variant, Path(target), Path(sources))
    for group in chosen:
        print(" ".join(verdict(modules, group).split())[:200])


if __name__ == "__main__":
    main()
