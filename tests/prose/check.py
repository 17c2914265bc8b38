#!/usr/bin/env python3
"""Looks for what makes the manual hard to read, and says what to write instead.

    check.py [PAGE...]     all pages, unless some are named
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import textstat
from proselint.checks import __register__
from proselint.config import load_from
from proselint.registry import CheckRegistry
from proselint.tools import LintFile

from text import Block, Sentence, blocks, sentences

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SUMMARY = "docs/SUMMARY.md"

WORDS_MAX = 35
# Of the sentences of a page with enough of them.
PASSIVE_MAX = 1 / 3
PASSIVE_SENTENCES_MIN = 10
# The grade of less text is chance.
GRADE_WORDS_MIN = 80

PASSIVE = re.compile(
    r"\b(?:am|is|are|was|were|be|been|being)\s+(?:(?:not|never|also|only|then|still|\w+ly)\s+)?"
    r"(?:\w{2,}ed|begun|bound|broken|brought|built|chosen|cut|done|drawn|driven|found|given|held|hidden|kept"
    r"|known|left|lost|made|meant|met|paid|put|read|run|said|seen|sent|set|shown|spent|taken|thought|told"
    r"|understood|won|written)\b",
    re.IGNORECASE,
)
# A clause that begins a sentence, unless it is a label: "What it needs.", "What you see: a list of names."
RIDDLE = re.compile(r"(?:Who|What(?:ever)?)\s+(?!.*\?$)(?!(?:\S+\s+){0,3}\S+:\s)(?:\S+\s+){3}")
SEPARATOR = "\n\n¶\n\n"


@dataclass(frozen=True, order=True)
class Fault:
    """What is wrong at a line, and what to write instead."""

    page: str
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.what}"


@dataclass(frozen=True)
class Row:
    """What is counted of a page."""

    page: str
    part: str
    words: int
    sentences: int
    passive: float
    grade: float | None

    def __str__(self) -> str:
        grade = "-" if self.grade is None else f"{self.grade:.1f}"
        counts = f"{grade:>5} {self.passive:>7.0%} {self.words:>6} {self.sentences:>9}"
        return f"{counts}  {self.part:<10}  {self.page}"


class Words:
    """The words that the manual does not use."""

    def __init__(self, lists: dict[str, dict[str, str]]) -> None:
        words = [word for part in lists.values() for word in part.items()]
        self.found = [(self.whole(find), say) for find, say in words]

    @staticmethod
    def whole(find: str) -> re.Pattern[str]:
        spaced = find.replace(" ", r"\s+")
        return re.compile(rf"(?<![\w-])(?:{spaced})(?![\w-])", re.IGNORECASE)

    def faults(self, page: str, block: Block) -> Iterator[Fault]:
        for found, say in self.found:
            for match in found.finditer(block.text):
                word = " ".join(match.group().split())
                what = f'"{word}": write {say}' if say else f'"{word}": leave it out'
                yield Fault(page, block.line_of(match.start()), what)


class Proselint:
    """Clichés, redundant, repeated and misused words, and the like."""

    def __init__(self) -> None:
        CheckRegistry().register_many(__register__)
        self.config = load_from(HERE / "proselint.json")

    def faults(self, page: str, of_page: list[Block]) -> Iterator[Fault]:
        filled = [block for block in of_page if block.text.strip()]
        begins, text = [], ""
        for block in filled:
            begins.append(len(text))
            text += block.text + SEPARATOR
        if not filled:
            return
        for found in LintFile(source=page, content=text).lint(self.config):
            result = found.check_result
            at = max(0, bisect_right(begins, result.span[0]) - 1)
            line = filled[at].line_of(result.span[0] - begins[at])
            yield Fault(page, line, f"{' '.join(result.message.split())} ({result.check_path})")


def grade(of_page: list[Sentence]) -> float | None:
    """The grade of Flesch and Kincaid."""
    if sum(len(one.words) for one in of_page) < GRADE_WORDS_MIN:
        return None
    text = " ".join(" ".join(one.words).replace(".", "") + "." for one in of_page if one.words)
    return float(textstat.flesch_kincaid_grade(text))


def of_sentence(page: str, one: Sentence) -> Iterator[Fault]:
    if len(one.words) > WORDS_MAX:
        what = f"a sentence of {len(one.words)} words: make it several of at most {WORDS_MAX}"
        yield Fault(page, one.line, what)
    if one.text.endswith((".", ":")) and RIDDLE.match(one.text):
        begin = " ".join(one.text.split()[:4])
        what = f'"{begin} ..." is a clause as a subject: begin with who does it, then what they do'
        yield Fault(page, one.line, what)


def parts_of_pages(summary: str) -> dict[str, str]:
    """Which part of the book each of its pages is in."""
    part, parts = "", {}
    for line in summary.splitlines():
        if line.startswith("# "):
            part = line[2:].strip()
        for link in re.findall(r"\]\(([^)]+\.md)\)", line):
            parts[f"docs/{link}"] = part
    return parts


class Manual:
    """The pages, their kinds, and what is asked of each."""

    def __init__(self) -> None:
        self.words = Words(tomllib.loads((HERE / "words.toml").read_text()))
        self.proselint = Proselint()
        settings = tomllib.loads((HERE / "pages.toml").read_text())
        self.grades: dict[str, float] = settings["grades"]
        self.harder: dict[str, dict[str, float]] = settings["harder"]
        self.parts: dict[str, str] = parts_of_pages((ROOT / SUMMARY).read_text()) | settings["outside"]
        in_docs = sorted(str(page.relative_to(ROOT)) for page in (ROOT / "docs").rglob("*.md"))
        self.pages = [*settings["outside"], *in_docs]

    def check(self, page: str) -> tuple[Row, list[Fault]]:
        of_page = list(blocks((ROOT / page).read_text()))
        # The list of pages has titles, and no sentences.
        paragraphs = [block for block in of_page if block.kind == "p" and page != SUMMARY]
        prose = [one for block in paragraphs for one in sentences(block)]
        faults = list(self.proselint.faults(page, of_page))
        for block in of_page:
            faults.extend(self.words.faults(page, block))
        for one in prose:
            faults.extend(of_sentence(page, one))
        passive = [one for one in prose if PASSIVE.search(one.text)]
        share = len(passive) / max(1, len(prose))
        if len(prose) >= PASSIVE_SENTENCES_MIN and share > PASSIVE_MAX:
            lines = ", ".join(str(line) for line in sorted({one.line for one in passive}))
            what = f"{share:.0%} of the sentences are passive, more than a third: say who does it"
            faults.append(Fault(page, passive[0].line, f"{what}, in some of lines {lines}"))
        words = sum(len(one.words) for one in prose)
        row = Row(page, self.parts.get(page, ""), words, len(prose), share, grade(prose))
        faults.extend(self.of_kind(row))
        return row, sorted(set(faults))

    def of_kind(self, row: Row) -> Iterator[Fault]:
        """Whether a page has its place in the book, and is as simple as its place asks for."""
        if row.page == SUMMARY:
            return
        if not row.part:
            yield Fault(row.page, 1, f"is not in the book: add it to {SUMMARY}")
        elif row.part not in self.grades:
            yield Fault(row.page, 1, f'"{row.part}" has no grade in tests/prose/pages.toml: add one')
        elif row.grade is not None:
            limit = self.harder.get(row.page, {}).get("grade", self.grades[row.part])
            if row.grade > limit:
                what = f"reads at grade {row.grade:.1f}, above {limit}: use shorter sentences and words"
                yield Fault(row.page, 1, what)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("pages", nargs="*", metavar="PAGE", help="such as docs/relay.md")
    manual = Manual()
    rows, faults = [], []
    for page in parser.parse_args().pages or manual.pages:
        row, found = manual.check(page)
        rows.append(row)
        faults.extend(found)
    print("grade passive  words sentences  part        page")
    for row in sorted(rows, key=lambda row: -(row.grade or 0)):
        print(row)
    for fault in faults:
        print(fault)
    print(f"prose: {len(rows)} pages, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
