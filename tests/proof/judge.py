"""Judges one mutant: `judge.py VARIANT GROUP SOURCES TARGET`. Compiles the sources and says what fails."""

from __future__ import annotations

import sys
from pathlib import Path

from compile import VARIANTS, build
from ir import Module, RefusedError
from theorems import Failure, Kernel, check, groups, theorems

MILLISECONDS = 60_000


def first_failure(modules: list[Module], group: str, k: int | None) -> str:
    """The first theorem of a group that does not hold, or what else is wrong; nothing if all hold."""
    try:
        for theorem in theorems(Kernel(modules), group, k):
            check(theorem, MILLISECONDS)
    except Failure as failure:
        return f"caught: {failure.theorem}" if failure.is_disproved else f"undecided: {failure}"
    except AssertionError as error:
        return f"caught: {error}"
    except RefusedError as error:
        return f"refused: {error}"
    return ""


def main() -> None:
    name, first, sources, target = sys.argv[1:]
    variant = next(variant for variant in VARIANTS if variant.name == name)
    modules = build(variant, Path(target), Path(sources))
    # The group that should notice comes first; of the others any may.
    jobs = sorted(groups(), key=lambda job: job[0] != first)
    others = ""
    for group, k in jobs:
        said = first_failure(modules, group, k)
        if said.startswith("caught"):
            print(said)
            return
        others = others or said
    print(others or "all theorems hold")


if __name__ == "__main__":
    main()
