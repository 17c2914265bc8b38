"""The notebook runs and draws its pictures; the examples of pages and docstrings run as they stand."""

from __future__ import annotations

import doctest
import inspect
import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

import bandana_lab

PACKAGE = Path(__file__).parents[1]


def test_the_notebook_runs_and_draws_its_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    # The kernel's own backend keeps pictures as outputs.
    monkeypatch.delenv("MPLBACKEND", raising=False)
    path = PACKAGE / "examples" / "lab.ipynb"
    notebook = nbformat.read(path, as_version=4)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not any(cell.outputs or cell.execution_count for cell in cells), "commit it without outputs"
    NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    pictures = [
        output.data["image/png"]
        for cell in cells
        for output in cell.outputs
        if "image/png" in output.get("data", {})
    ]
    drawing = [cell for cell in cells if "plt.show()" in cell.source]
    assert len(pictures) == len(drawing) >= 3
    assert all(len(picture) > 5_000 for picture in pictures)
    errors = [output for cell in cells for output in cell.outputs if output.output_type == "stream"]
    assert [output.name for output in errors] == ["stdout"], errors


@pytest.mark.parametrize(
    "page", [PACKAGE / "README.md", PACKAGE.parents[2] / "docs" / "lab.md"], ids=lambda page: page.name
)
def test_examples_of_pages_run(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    examples = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    assert examples, f"{page} has no example"
    for example in examples:
        exec(compile(example, str(page), "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out


@pytest.mark.parametrize("module", [bandana_lab, bandana_lab.accounting])
def test_examples_of_docstrings_run(module: object) -> None:
    results = doctest.testmod(module)  # type: ignore[arg-type]
    assert results.attempted > 0 and results.failed == 0


def test_everything_public_is_documented() -> None:
    for module in (bandana_lab, bandana_lab.accounting):
        for name in module.__all__:
            public = getattr(module, name)
            assert public.__doc__, name
            members = vars(public).items() if isinstance(public, type) else ()
            for member, value in members:
                is_told = inspect.isroutine(value) or inspect.isdatadescriptor(value)
                if is_told and not member.startswith("_"):
                    assert value.__doc__, f"{name}.{member}"
