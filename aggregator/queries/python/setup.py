"""Puts the description of the server's messages into the package, as the server has it."""

import pathlib
import shutil

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

HERE = pathlib.Path(__file__).resolve().parent
MESSAGES = HERE / "bandana.v1.binpb"
if not MESSAGES.exists():  # no source distribution, but the repository
    MESSAGES = HERE.parents[2] / "shared" / "src" / "wire" / MESSAGES.name


class WithMessages(build_py):
    """Copies the description beside the modules."""

    def run(self) -> None:
        super().run()
        shutil.copy2(MESSAGES, pathlib.Path(self.build_lib) / "bandana_queries")


class WithMessagesToo(sdist):
    """Has the description, for whoever builds without the repository."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        super().make_release_tree(base_dir, files)
        shutil.copy2(MESSAGES, base_dir)


setup(cmdclass={"build_py": WithMessages, "sdist": WithMessagesToo})
