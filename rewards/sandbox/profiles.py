"""Defines the languages that a sandbox runs: the files to show inside and the commands to run.

`python` and `pytest` run in the zygote itself; `c` and `javascript` replace the process, where gcc and node exist.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from dataclasses import dataclass

from grpo.rewards.sandbox.interpreter import library_mounts, program_loader

NAMES = ("python", "pytest", "c", "javascript")


@dataclass(frozen=True, slots=True)
class Profile:
    file: str = "main.py"  # the name that the program gets
    compile: tuple[str, ...] = ()  # the command that makes it executable, or empty
    command: tuple[str, ...] = ()  # the command that runs it, or empty for the zygote's own interpreter
    mounts: tuple[tuple[str, str], ...] = ()  # path outside and path inside, of what the language needs beside Python
    links: tuple[tuple[str, str], ...] = ()  # what a link points to, and its path inside
    least_processes: int = 1  # threads that the language's own runtime needs
    # it reserves much address space that it does not use, so that only what it writes is limited
    maps_freely: bool = False


def find_profile(name: str) -> Profile | None:
    """Returns a profile, or None when this machine lacks what it needs or there is none of that name."""
    if name == "python" or (name == "pytest" and importlib.util.find_spec("pytest")):
        return Profile()
    if name == "c":
        return _c()
    if name == "javascript":
        return _javascript()
    return None


def _c() -> Profile | None:
    compiler = shutil.which("gcc")
    if not compiler:
        return None
    names = ("cc1", "collect2", "as", "ld", "crt1.o", "libc.so")
    parts = {name: os.path.realpath(_printed(compiler, f"-print-file-name={name}")) for name in names}
    for name in ("cc1", "collect2", "as", "ld"):
        where = _printed(compiler, f"-print-prog-name={name}")
        parts[name] = os.path.realpath(shutil.which(where) or where)
    if not all(os.path.isabs(path) and os.path.exists(path) for path in parts.values()):
        return None
    private, system = os.path.dirname(parts["cc1"]), os.path.dirname(parts["crt1.o"])
    mounts = {private: private, system: system, "/usr/include": "/usr/include"}
    runtime = os.path.dirname(os.path.realpath(_printed(compiler, "-print-file-name=libgcc.a")))
    mounts[runtime] = runtime
    inside = "/usr/bin/gcc"
    mounts[os.path.realpath(compiler)] = inside
    for name in ("as", "ld"):
        mounts[parts[name]] = f"/usr/bin/{name}"
    links = [("usr/lib", "/lib")] if os.path.islink("/lib") else []
    return Profile(
        "main.c",
        (inside, "-O2", "-std=gnu17", "-o", "main", "main.c", "-lm"),
        ("./main",),
        tuple(mounts.items()),
        tuple(links),
    )


def _javascript() -> Profile | None:
    node = shutil.which("node")
    if not node:
        return None
    node = os.path.realpath(node)
    try:
        libraries = libraries_of(node)
    except (OSError, subprocess.SubprocessError):
        return None
    mounts, links = library_mounts(libraries)
    loader = program_loader(node)
    shown = {node: "/usr/bin/node", **dict(mounts)}
    if loader:
        shown[os.path.realpath(loader)] = loader
    command = ("/usr/bin/node", "main.js")
    return Profile("main.js", (), command, tuple(shown.items()), tuple(links), 16, True)


def libraries_of(program: str) -> list[str]:
    """Returns the shared libraries that a program maps when it starts."""
    loader = program_loader(program)
    if not loader:
        return []
    done = subprocess.run([loader, "--list", program], capture_output=True, text=True, timeout=30, check=True)
    paths = [word for line in done.stdout.splitlines() for word in line.split() if word.startswith("/")]
    return sorted({os.path.realpath(path) for path in paths if ".so" in os.path.basename(path)})


def _printed(compiler: str, question: str) -> str:
    return subprocess.run([compiler, question], capture_output=True, text=True, timeout=30, check=False).stdout.strip()
