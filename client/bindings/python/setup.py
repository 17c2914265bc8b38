"""Builds the Rust library and puts it into the wheel, which fits every CPython 3 of the platform.

A source distribution has in its folder `rust` the crates that the library is made of, as a workspace.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist
from setuptools.dist import Distribution

HERE = pathlib.Path(__file__).resolve().parent
NAME = {"darwin": "libbandana_ffi.dylib", "win32": "bandana_ffi.dll"}.get(
    sys.platform, "libbandana_ffi.so"
)
RUST = HERE / "rust" if (HERE / "rust").exists() else HERE.parents[2]
CRATES = ["shared", "client", "client/bindings/core", "client/bindings/uniffi"]


def without(manifest, sections):
    """The text of a Cargo.toml without the sections that match."""
    parts = re.split(r"^(?=\[)", manifest.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return "".join(part for part in parts if not re.match(sections, part))


class WithCrates(sdist):
    """Adds the crates: what is built of them, without their tests."""

    def make_release_tree(self, base_dir, files):
        super().make_release_tree(base_dir, files)
        rust = pathlib.Path(base_dir).resolve() / "rust"
        for crate in CRATES:
            shutil.copytree(RUST / crate / "src", rust / crate / "src")
            manifest = without(RUST / crate / "Cargo.toml", r"\[dev-dependencies|\[\[(bench|test)\]")
            (rust / crate / "Cargo.toml").write_text(manifest, encoding="utf-8")
        workspace = f"[workspace]\nresolver = \"3\"\nmembers = {CRATES}\n\n"
        workspace += without(RUST / "Cargo.toml", r"\[workspace\]|\[profile\.\w+\.package")
        (rust / "Cargo.toml").write_text(workspace, encoding="utf-8")
        shutil.copy(RUST / "Cargo.lock", rust)
        # Leaves out of the lock file what the others need.
        subprocess.run(["cargo", "update", "--quiet", "--workspace"], cwd=rust, check=True)


class WithLibrary(build_py):
    """Builds the library beside the modules."""

    def run(self):
        super().run()
        target = pathlib.Path(self.build_lib).resolve() / "bandana"
        profile = os.environ.get("BANDANA_CARGO_PROFILE", "release")
        # Such as "zigbuild --target x86_64-unknown-linux-gnu.2.17", for older systems than this one.
        build = os.environ.get("BANDANA_CARGO_BUILD", "build").split()
        command = ["cargo", *build, "--profile", profile, "--locked", "-p", "bandana-uniffi"]
        command += ["--message-format", "json-render-diagnostics"]
        try:
            built = subprocess.run(command, cwd=RUST, check=True, stdout=subprocess.PIPE, text=True)
        except FileNotFoundError:
            raise SystemExit("there is no cargo: install Rust 1.95 or later, or take a wheel") from None
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
    cmdclass={"build_py": WithLibrary, "bdist_wheel": ForThePlatform, "sdist": WithCrates},
    distclass=WithBinary,
)
