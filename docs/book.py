"""A preprocessor of mdBook: the README is the book's first page, and links out of docs/ lead to the repository."""

import json
import pathlib
import posixpath
import re
import sys

LINK = re.compile(r"(?P<picture>!?)(?P<text>\[[^\]]*\]\()(?P<to>[^)\s:#]+)")
ROOT = pathlib.Path(__file__).resolve().parents[1]
FRONT = "README.md"


def lead(link, folder, repository):
    """The link of a page in this folder of the project, as the book has it."""
    target = posixpath.normpath(posixpath.join(folder, link["to"]))
    if target == FRONT:
        target = "docs/index.md"
    if target.startswith("docs/") and target != "docs/SUMMARY.md":
        # The README's folder in the book is docs.
        to = posixpath.relpath(target, folder or "docs")
    else:
        shown = "raw" if link["picture"] else "blob"
        to = f"{repository}/{shown}/main/{target}"
    return f"{link['picture']}{link['text']}{to}"


def with_links(markdown, folder, repository):
    return LINK.sub(lambda link: lead(link, folder, repository), markdown)


def chapters(items):
    for item in items:
        if "Chapter" in item:
            yield item["Chapter"]
            yield from chapters(item["Chapter"]["sub_items"])


def main():
    if sys.argv[1:2] == ["supports"]:
        return
    context, book = json.load(sys.stdin)
    repository = context["config"]["output"]["html"]["git-repository-url"]
    for chapter in chapters(book["items"]):
        folder = posixpath.dirname(posixpath.join("docs", chapter["path"] or ""))
        chapter["content"] = with_links(chapter["content"], folder, repository)
    front = {
        "name": "Bandana",
        "content": with_links((ROOT / FRONT).read_text(), "", repository),
        "number": None,
        "sub_items": [],
        "path": "index.md",
        "source_path": None,
        "parent_names": [],
    }
    book["items"].insert(0, {"Chapter": front})
    json.dump(book, sys.stdout)


if __name__ == "__main__":
    main()
