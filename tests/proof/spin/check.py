#!/usr/bin/env python3
"""Searches every state of the models of docs/proofs.md, by Spin.

check.py            small sizes; and that each function that a model names is in the source
check.py --all      larger sizes too
check.py --mutants  changes the models in one place at a time, and requires that each change breaks a property
"""

import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
MODELS = ["device", "counting", "replicas"]

SMALL = [
    ("device", "ASSIGNMENTS=1 STARTS=3 ERRORS=1 WHOLE NO_REFUSAL"),
    ("device", "ASSIGNMENTS=2 STARTS=2 ERRORS=0 CAP=1 NO_REFUSAL"),
    ("device", "ASSIGNMENTS=1 STARTS=2 ERRORS=0 TWO"),
    ("device", "ASSIGNMENTS=1 STARTS=3 ERRORS=0 RESTORE"),
    ("counting", "UPLOADS=2 DAYS=3 WINDOW=2 STARTS=3"),
    ("replicas", "UPLOADS=1 REPLICAS=2 SESSIONS=3 LOSSES=2"),
]

LARGE = [
    ("device", "ASSIGNMENTS=1 STARTS=4 ERRORS=2 WHOLE NO_REFUSAL"),
    ("device", "ASSIGNMENTS=2 STARTS=2 ERRORS=1 NO_REFUSAL"),
    ("device", "ASSIGNMENTS=3 STARTS=2 ERRORS=0 CAP=2 NO_REFUSAL"),
    ("device", "ASSIGNMENTS=1 STARTS=3 ERRORS=0 TWO"),
    ("device", "ASSIGNMENTS=2 STARTS=2 ERRORS=0 RESTORE"),
    ("counting", "UPLOADS=3 DAYS=3 WINDOW=2 STARTS=2"),
    ("counting", "UPLOADS=2 DAYS=4 WINDOW=3 STARTS=4"),
    ("replicas", "UPLOADS=2 REPLICAS=2 SESSIONS=2 LOSSES=1"),
    ("replicas", "UPLOADS=1 REPLICAS=3 SESSIONS=3 LOSSES=2"),
]

DEVICE = "ASSIGNMENTS=1 STARTS=3 ERRORS=0"
COUNTING = "UPLOADS=2 DAYS=3 WINDOW=2 STARTS=3"
REPLICAS = "UPLOADS=1 REPLICAS=2 SESSIONS=2 LOSSES=1"

MUTANTS = [
    ("device", "ASSIGNMENTS=2 STARTS=2 ERRORS=0 CAP=1 LATE_PAYMENT"),
    ("device", f"{DEVICE} EARLY_REPORT"),
    ("device", f"{DEVICE} FRESH_RETRY"),
    ("device", f"{DEVICE} NO_SYNC"),
    ("device", f"{DEVICE} READ_IS_DURABLE"),
    ("device", f"{DEVICE} NO_REFUSAL NO_SETTLE"),
    ("device", "ASSIGNMENTS=1 STARTS=2 ERRORS=0 TWO NO_MARK"),
    ("device", f"{DEVICE} TWO NO_COVER BLIND_APPEND"),
    ("device", f"{DEVICE} RESTORE NO_DONE"),
    *(
        ("counting", f"{COUNTING} {name}")
        for name in (
            "EARLY_ANSWER NO_SETTLE NO_LOAD NO_FRESH TWO_TRANSACTIONS SHORT_MEMORY FAR_BACK FRESH_UPLOAD"
        ).split()
    ),
    *(
        ("replicas", f"{REPLICAS} {name}")
        for name in "EARLY_ANSWER HOPE PLAIN_INSERT NO_WAIT EARLY_LOOK SHORT_MEMORY".split()
    ),
    # Limits: what the page does not promise. Who mends one moves it to the searches above.
    ("device", "ASSIGNMENTS=1 STARTS=2 ERRORS=0 TWO RACE"),
    ("device", f"{DEVICE} RESTORE BOTH"),
    ("device", f"{DEVICE} RESTORE POWER"),
]


class Result:
    """What a search has found."""

    def __init__(self, output: str, story: str, first_step: int, seconds: float):
        def number(pattern: str) -> int:
            found = re.search(pattern, output)
            if not found:
                sys.exit(f"no result of a search:\n{output}")
            return int(float(found.group(1)))

        self.errors = number(r"errors: (\d+)")
        self.states = number(r"([\d.e+]+) states, stored")
        self.broken = "".join(re.findall(r"pan:1: (assertion violated .*?) \(at depth", output))
        # A search that was cut off has looked at a part only.
        self.is_whole = not re.search(r"too small|out of memory|Interrupted|max search depth", output)
        # The lines that nothing has reached. Parts that several steps share are left out: each step has its
        # own copy of them.
        lines = re.findall(r"\.pml:(\d+), state \d+, \"(.*)\"", output)
        self.unreached = {int(line) for line, what in lines if what != "-end-" and int(line) > first_step}
        # The steps that lead to the error.
        self.story = story
        self.seconds = seconds


def run(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)}:\n{done.stdout}{done.stderr}")
    return done.stdout


def search(model: str, definitions: str) -> Result:
    """Searches all states of a model, or those up to the first error."""
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copy(HERE / f"{model}.pml", folder)
        run(["spin", "-a", *(f"-D{one}" for one in definitions.split()), f"{model}.pml"], folder)
        options = ["-DSAFETY", "-DNOREDUCE", "-DMEMLIM=6000", "-DVECTORSZ=1024"]
        # More than this optimizes for longer than a small search takes.
        run(["cc", "-O1", "-w", *options, "-o", "pan", "pan.c"], folder)
        output = run(["./pan", "-m1000000", "-w22"], folder)
        story = ""
        if (folder / f"{model}.pml.trail").exists():
            replay = ["spin", "-t", "-T", *(f"-D{one}" for one in definitions.split()), f"{model}.pml"]
            told = subprocess.run(replay, cwd=folder, capture_output=True, text=True, check=False)
            story = told.stdout.split("spin:")[0]
    text = (HERE / f"{model}.pml").read_text()
    first_step = text[: text.index("\nproctype")].count("\n")
    return Result(output, story, first_step, time.monotonic() - begin)


def named(text: str) -> set[tuple[str, str]]:
    """The files and functions that the comments of a model name."""
    comments = " ".join(re.findall(r"/\*.*?\*/", text, re.DOTALL))
    comments = re.sub(r"\s*\n\s*\*\s*", " ", comments)
    found = re.findall(r"([a-z_/]+\.rs): (\w+(?:, \w+)*)[.:]", comments)
    return {(file, function) for file, functions in found for function in functions.split(", ")}


def check_names() -> None:
    count = 0
    for model in MODELS:
        text = (HERE / f"{model}.pml").read_text()
        pairs = named(text)
        mentioned = set(re.findall(r"[a-z_/]+/[a-z_]+\.rs", text))
        missing = [f"{file} without a function" for file in mentioned - {file for file, _ in pairs}]
        for file, function in pairs:
            path = ROOT / file
            source = path.read_text() if path.exists() else ""
            if not re.search(rf"\b(fn|const|struct|enum) {function}\b", source):
                missing.append(f"{file}: {function}")
        if missing or not pairs:
            names = "\n".join(sorted(missing))
            sys.exit(f"{model}.pml stands for what the source does not have. Read both, then mend it:\n{names}")
        count += len(pairs)
    print(f"models: all {count} functions that they stand for are in the source")


def check_definitions() -> None:
    """A misspelt definition would search the model as it is."""
    texts = {model: (HERE / f"{model}.pml").read_text() for model in MODELS}
    for model, definitions in SMALL + LARGE + MUTANTS:
        for one in definitions.split():
            name = one.split("=")[0]
            if not re.search(rf"#ifn?def {name}\b|defined\({name}\)", texts[model]):
                sys.exit(f"{model}.pml knows no {one}")
    for model, text in texts.items():
        tried = {one for other, definitions in MUTANTS if other == model for one in definitions.split()}
        untried = set(re.findall(r"#ifn?def (\w+) /\* MUTANT", text)) - tried
        if untried:
            sys.exit(f"{model}.pml: nothing tries {sorted(untried)}")


def hold(searches: list[tuple[str, str]]) -> None:
    unreached: dict[str, set[int]] = {}
    for model, definitions in searches:
        result = search(model, definitions)
        print(f"{model} {definitions}: {result.states} states, {result.seconds:.1f} s", flush=True)
        if result.errors:
            sys.exit(f"{result.story}{model}.pml, {definitions}: {result.broken}")
        if not result.is_whole:
            sys.exit(f"{model}.pml, {definitions}: the search was cut off")
        unreached[model] = unreached.get(model, result.unreached) & result.unreached
    for model, lines in unreached.items():
        if lines:
            sys.exit(f"{model}.pml: no search reaches the lines {sorted(lines)}")


def catch(mutants: list[tuple[str, str]]) -> None:
    for model, definitions in mutants:
        result = search(model, definitions)
        if not result.broken:
            sys.exit(f"{model}.pml, {definitions}: no property is broken")
        print(f"{model} {definitions}: {result.broken}, {result.seconds:.1f} s", flush=True)
    print(f"models: all {len(mutants)} changes break a property")


def main() -> None:
    check_names()
    check_definitions()
    if "--mutants" in sys.argv:
        catch(MUTANTS)
    else:
        hold(SMALL + (LARGE if "--all" in sys.argv else []))
    print("models: all searches have ended as they must")


if __name__ == "__main__":
    main()
