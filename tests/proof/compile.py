"""Has the compiler emit the IR that is proved, and the library that the translator is tested with."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ir import Module

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent


@dataclass(frozen=True)
class Variant:
    """A way to compile the kernel."""

    name: str
    profile: str
    target: str | None = None
    settings: tuple[str, ...] = ()
    # Groups of theorems that are not proved, since the IR has what the tool does not model.
    left_out: tuple[str, ...] = ()
    # Only that nothing panics and nothing is undefined: what is computed is proved of a release.
    is_about_faults: bool = False


RELEASE = Variant("x86-64", "release")
CHECKED = Variant(
    "x86-64, checked",
    "checked",
    settings=(
        'profile.checked.inherits="release"',
        "profile.checked.overflow-checks=true",
        "profile.checked.debug-assertions=true",
    ),
    is_about_faults=True,
)
VARIANTS = (
    RELEASE,
    CHECKED,
    # Of the exponential curve a table is read in a loop here.
    Variant("x86-64, small", "embedded", left_out=("exponential",)),
    Variant("aarch64", "release", "aarch64-unknown-linux-gnu"),
    Variant("wasm32", "release", "wasm32-unknown-unknown"),
)


def sysroot() -> Path:
    """Where the compiler looks for the core libraries of targets.

    `BANDANA_PROOF_SYSROOT` names another folder, laid out like the compiler's own, with more targets.
    """
    given = os.environ.get("BANDANA_PROOF_SYSROOT")
    if given:
        return Path(given)
    return Path(subprocess.check_output(["rustc", "--print", "sysroot"], text=True, cwd=ROOT).strip())


def is_there(variant: Variant) -> bool:
    """Whether the compiler has the core library of a variant's target."""
    return variant.target is None or (sysroot() / "lib/rustlib" / variant.target).is_dir()


def folder(variant: Variant, target_dir: Path) -> Path:
    """Where cargo puts what it makes of a variant."""
    base = target_dir / variant.target if variant.target else target_dir
    return base / variant.profile / "deps"


def build(variant: Variant, target_dir: Path, root: Path = ROOT) -> list[Module]:
    """Compiles the kernel, and reads the IR of both crates."""
    flags = ["--emit=llvm-ir", "-Ccodegen-units=1", f"--sysroot={sysroot()}"]
    command = [
        "cargo",
        "rustc",
        "-q",
        "--message-format=json-render-diagnostics",
        "--locked",
        "-p",
        "bandana-proof",
        "--profile",
        variant.profile,
    ]
    for setting in variant.settings:
        command += ["--config", setting]
    if variant.target is None:
        command += ["--crate-type", "cdylib"]
    else:
        # A library needs no linker, and no standard library of the target's.
        command += ["--target", variant.target, "--crate-type", "rlib"]
    environment = os.environ | {
        "CARGO_TARGET_DIR": str(target_dir),
        "CARGO_ENCODED_RUSTFLAGS": "\x1f".join(flags),
        "CARGO_INCREMENTAL": "0",
    }
    output = subprocess.check_output(command, cwd=root, env=environment, text=True)
    messages = [json.loads(line) for line in output.splitlines()]
    return [Module(emitted(messages, crate)) for crate in ("bandana_proof", "bandana_shared")]


def emitted(messages: list[dict[str, Any]], crate: str) -> Path:
    """The IR of a crate: it lies beside the library that cargo names."""
    made = [one for one in messages if one.get("target", {}).get("name") == crate and "filenames" in one]
    library = Path(made[-1]["filenames"][0])
    # The crate that was asked for is named without its hash.
    deps = library.parent if library.parent.name == "deps" else library.parent / "deps"
    found = list(deps.glob(f"{library.stem.removeprefix('lib')}*.ll"))
    if len(found) != 1:
        raise RuntimeError(f"{deps} should have one file of IR of {crate}, and has {found}: delete the folder")
    return found[0]


def library(variant: Variant, target_dir: Path) -> Path:
    """The compiled library of a variant for this machine."""
    return folder(variant, target_dir) / "libbandana_proof.so"
