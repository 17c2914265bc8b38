"""Builds the Rust library and puts it into the wheel, which fits every CPython 3 of the platform."""

import os
import pathlib
import shutil
import subprocess
import sys

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py
from setuptools.dist import Distribution

HERE = pathlib.Path(__file__).resolve().parent
NAME = {"darwin": "libbandana_ffi.dylib", "win32": "bandana_ffi.dll"}.get(
    sys.platform, "libbandana_ffi.so"
)


class WithLibrary(build_py):
    """Builds the library beside the modules."""

    def run(self):
        super().run()
        target = pathlib.Path(self.build_lib).resolve() / "bandana"
        profile = os.environ.get("BANDANA_CARGO_PROFILE", "release")
        command = ["cargo", "build", "--profile", profile, "--locked", "-p", "bandana-uniffi"]
        command += ["--message-format", "json-render-diagnostics"]
        built = subprocess.run(command, cwd=HERE, check=True, stdout=subprocess.PIPE, text=True)
        # Each line is an object; the file's name stands in the one of the library.
        paths = [part for part in built.stdout.split('"') if part.endswith(NAME)]
        if not paths:
            raise SystemExit(f"cargo has built no {NAME}")
        shutil.copy2(paths[-1], target / NAME)


class ForThePlatform(bdist_wheel):
    """Tags the wheel: any CPython 3, this platform."""

    def finalize_options(self):
        super().finalize_options()
        self.root_is_pure = False

    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


class WithBinary(Distribution):
    """Its files belong to a platform."""

    def has_ext_modules(self):
        return True


setup(
    cmdclass={"build_py": WithLibrary, "bdist_wheel": ForThePlatform},
    distclass=WithBinary,
)
