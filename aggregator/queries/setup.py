"""Puts the description of the server's messages into the package, as the server has it."""

import pathlib
import shutil

from setuptools import setup
from setuptools.command.build_py import build_py

HERE = pathlib.Path(__file__).resolve().parent
MESSAGES = HERE.parents[1] / "shared" / "src" / "wire" / "bandana.v1.binpb"


class WithMessages(build_py):
    """Copies the description beside the modules."""

    def run(self) -> None:
        super().run()
        shutil.copy2(MESSAGES, pathlib.Path(self.build_lib) / "bandana_queries")


setup(cmdclass={"build_py": WithMessages})
