"""The prose of a Markdown page: its paragraphs, headings and cells as plain text, with their lines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from markdown_it import MarkdownIt
from markdown_it.token import Token

# What stands for a span of code. Two in a row differ, so that no word seems to be repeated.
CODE = ("Code", "Name")
END = re.compile(r"""[.!?]["'”’)\]]*(?=\s+["'“‘(\[]*[A-Z0-9Α-ωε])""")
WORD = re.compile(r"[^\W_]+(?:['’.,/-][^\W_]+)*")
ABBREVIATION = re.compile(r"\b(?:e\.g|i\.e|etc|vs|al|cf|approx|No)\.$")
CELLS = ("th", "td")

MARKDOWN = MarkdownIt("commonmark").enable("table")


@dataclass(frozen=True)
class Block:
    """A paragraph, a heading or a cell of a table."""

    kind: str
    line: int
    text: str

    def line_of(self, offset: int) -> int:
        return self.line + self.text.count("\n", 0, offset)


@dataclass(frozen=True)
class Sentence:
    """A sentence of a paragraph."""

    line: int
    text: str

    @property
    def words(self) -> list[str]:
        return WORD.findall(self.text)


def plain(inline: Token) -> str:
    """The text of a block. Code is one word, and a link is what it shows."""
    parts: list[str] = []
    spans = 0
    for token in inline.children or []:
        if token.type == "text":
            parts.append(token.content)
        elif token.type == "code_inline":
            parts.append(CODE[spans % len(CODE)])
            spans += 1
        elif token.type in ("softbreak", "hardbreak"):
            parts.append("\n")
    return "".join(parts)


def blocks(markdown: str) -> Iterator[Block]:
    """What a page says outside of code."""
    line, kind = 1, "p"
    for token in MARKDOWN.parse(markdown):
        if token.map is not None:
            line = token.map[0] + 1
        if token.type == "inline":
            yield Block(kind, line, plain(token))
        elif token.nesting == 1:
            kind = token.tag


def sentences(block: Block) -> Iterator[Sentence]:
    """The sentences of a paragraph."""
    begin = 0
    for end in END.finditer(block.text):
        if not ABBREVIATION.search(block.text[: end.start() + 1]):
            yield sentence(block, begin, end.end())
            begin = end.end()
    if block.text[begin:].strip():
        yield sentence(block, begin, len(block.text))


def sentence(block: Block, begin: int, end: int) -> Sentence:
    text = block.text[begin:end]
    begin += len(text) - len(text.lstrip())
    return Sentence(block.line_of(begin), " ".join(text.split()))
