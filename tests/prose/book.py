#!/usr/bin/env python3
"""Follows the links inside the book that mdBook has built, to their headings.

    book.py FOLDER
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """The anchors of a page, and where it leads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id":
                self.anchors.add(value or "")
            elif name in ("href", "src"):
                self.links.add(value or "")


def faults(folder: Path) -> list[str]:
    # The page for printing has all others in it, and the one for what is not found has no place.
    left_out = ("print.html", "404.html")
    files = [file.resolve() for file in folder.rglob("*.html") if file.name not in left_out]
    pages = {file: Page(file.read_text()) for file in files}
    found = []
    for file, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            heading = unquote(parts.fragment)
            shown = f"{file.relative_to(folder.resolve())}: {link}"
            if not target.exists():
                found.append(f"{shown} leads nowhere in the book")
            elif heading and target in pages and heading not in pages[target].anchors:
                found.append(f"{shown} leads to no heading in the book")
    if not list(folder.glob("searchindex*.js")):
        found.append("the book has no search")
    return sorted(found)


def main() -> int:
    folder = Path(sys.argv[1])
    found = faults(folder)
    for fault in found:
        print(fault)
    print(f"book: {len(list(folder.rglob('*.html')))} pages, {len(found)} faults")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
