"""The notebook runs and draws its pictures; the examples of pages and docstrings run as they stand."""

from __future__ import annotations

import doctest
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from conftest import Server
from nbclient import NotebookClient

import bandana_queries
from bandana_queries import _predicates

PACKAGE = Path(__file__).parents[1]
PEOPLE = "age,city,ill\n" + "".join(
    f"{18 + i * 7 % 82},{'Bonn' if i % 3 else 'Ulm'},{'no' if i % 11 else 'yes'}\n" for i in range(5000)
)


@pytest.fixture()
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server of its own at the address that programs ask by default."""
    server = Server(tmp_path)
    (server.files / "people.csv").write_text(PEOPLE)
    monkeypatch.setenv("BANDANA_OPERATOR_URL", server.url)
    yield server
    server.stop()


def test_the_notebook_runs_and_draws_its_pictures(
    fresh: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MPLBACKEND", raising=False)
    notebook = nbformat.read(PACKAGE / "examples" / "queries.ipynb", as_version=4)
    [commands] = re.findall(r"^```sh\n(.*?)^```", notebook.cells[0].source, re.M | re.S)
    # What is installed already, and the server of the fixture.
    made = [line for line in commands.splitlines() if not line.startswith(("pip ", "bandana "))]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path}
    subprocess.run(["sh", "-e", "-c", "\n".join(made)], check=True, env=environment, cwd=tmp_path, timeout=60)
    for file in (tmp_path / "data-sets").glob("*.csv"):
        file.rename(fresh.files / file.name)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not any(cell.outputs or cell.execution_count for cell in cells), "commit it without outputs"
    NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    outputs = [output for cell in cells for output in cell.outputs]
    pictures = [one.data["image/png"] for one in outputs if "image/png" in one.get("data", {})]
    assert len(pictures) == 4 and all(len(picture) > 5_000 for picture in pictures)
    assert any("<progress" in one.data.get("text/html", "") for one in outputs if "data" in one)


def test_the_examples_of_pages_run(fresh: Server, capsys: pytest.CaptureFixture[str]) -> None:
    pages = [PACKAGE / "README.md", PACKAGE.parents[2] / "docs" / "queries.md"]
    for place, page in enumerate(pages):
        if place == 1:
            # One content has one budget.
            fresh_rows = PEOPLE.splitlines(keepends=True)
            (fresh.files / "people.csv").write_text("".join(fresh_rows[:-1]))
        examples = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
        assert examples, f"{page} has no example"
        for example in examples:
            text = example.replace('"people"', f'"people-{place}"')
            exec(compile(text, str(page), "exec"), {"__name__": "__main__"})
        assert "(" in capsys.readouterr().out


def test_the_names_of_the_page_are_found(fresh: Server, tmp_path: Path) -> None:
    lines = [f"{'tea' if i % 3 else 'coffee'},{i % 500}\n" for i in range(3_000)] + ["saffron,400\n"]
    (fresh.files / "orders.csv").write_text("product,price\n" + "".join(lines))
    page = (PACKAGE.parents[2] / "docs" / "queries.md").read_text()
    [commands] = [block for block in re.findall(r"^```sh\n(.*?)^```", page, re.M | re.S) if "--find" in block]
    program = shutil.which(os.environ.get("BANDANA_PROGRAM", "bandana"))
    assert program is not None
    (tmp_path / "bandana").symlink_to(Path(program).resolve())
    path = f"{tmp_path}:{os.environ['PATH']}"
    subprocess.run(["sh", "-e", "-c", commands], check=True, env={**os.environ, "PATH": path}, timeout=60)
    orders = bandana_queries.Client().dataset("orders")
    assert orders.columns[0] == "product:coffee|tea|other*"


def test_the_examples_of_docstrings_run(fresh: Server) -> None:
    for module in (bandana_queries, _predicates):
        found = doctest.testmod(module, extraglobs={"url": fresh.url})
        assert found.attempted > 0 and found.failed == 0
