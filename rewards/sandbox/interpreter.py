"""Finds the files that an interpreter needs inside a sandbox.

These are the executable, its standard library, and the shared libraries that importing all of it maps. Inside, they lie
where a system Python has them, so that no path of the host shows.
"""

from __future__ import annotations

import importlib.util
import json
import os
import struct
import subprocess
import sys
from dataclasses import dataclass
from functools import lru_cache

from grpo.plugins.errors import SandboxUnavailable

LIBRARIES = "/usr/lib/sandbox"
_PROBE = """
import contextlib, importlib, io, json, os, sys, sysconfig
folder = next((path for path in sys.path if path.endswith("lib-dynload")), "")
with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
    for file in sorted(os.listdir(folder)) if folder else ():
        name = file.split(".")[0]
        if file.endswith(".so") and not name.startswith(("_test", "xx", "_xx", "_tkinter", "_ctypes_test")):
            try:
                importlib.import_module(name)
            except Exception as error:
                sys.stderr.write(str(error))
with open("/proc/self/maps") as maps:
    mapped = sorted({line.split(None, 5)[5].strip() for line in maps if line.count("/")})
print(json.dumps({
    "executable": os.path.realpath("/proc/self/exe"), "stdlib": sysconfig.get_path("stdlib"), "mapped": mapped,
    "name": "python%d.%d" % sys.version_info[:2], "folder": getattr(sys, "platlibdir", "lib"),
    "version": list(sys.version_info[:2]), "dynload": folder,
}))
"""
_OLDEST = (3, 9)
PACKAGES = "/usr/lib/sandbox-packages"
_QUIET = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}  # a zygote has one thread
_PACKAGE_PROBE = """
import importlib, json, os, sys
names, folders = json.loads(sys.argv[1])
sys.path += folders
output = os.dup(1)
os.dup2(2, 1)
for name in names:
    importlib.import_module(name)
with open("/proc/self/maps") as maps:
    mapped = sorted({line.split(None, 5)[5].strip() for line in maps if line.count("/")})
os.write(output, json.dumps([path for path in mapped if ".so" in os.path.basename(path)]).encode())
"""


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python and its files."""

    executable: str  # its path inside
    mounts: tuple[tuple[str, str], ...]  # path outside and path inside, of files and folders
    masks: tuple[str, ...]  # folders inside that shall be empty
    links: tuple[tuple[str, str], ...]  # what a link points to, and its path inside
    stdlib: str  # where its standard library lies outside


def default_python() -> str:
    """Returns the Python that runs this process, outside of its virtual environment."""
    return str(getattr(sys, "_base_executable", "") or sys.executable)


@lru_cache(maxsize=8)
def find_interpreter(python: str) -> Interpreter:
    """Returns the files of a Python. Raises SandboxUnavailable if there is no such Python, or it is too old."""
    try:
        done = subprocess.run(
            [python, "-I", "-S", "-c", _PROBE], capture_output=True, text=True, timeout=60, check=True, env={}
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise SandboxUnavailable(
            f"the interpreter '{python}' cannot be run ({error}). Name another with the option python=/path/to/python3."
        ) from error
    files = json.loads(done.stdout)
    if tuple(files["version"]) < _OLDEST:
        raise SandboxUnavailable(f"'{python}' is older than Python 3.9. Name a newer one: python=/path/to/python3.")
    executable = files["executable"]
    inside = f"/usr/bin/{files['name']}"
    library = f"/usr/{files['folder']}/{files['name']}"
    mounts = [(executable, inside), (files["stdlib"], library)]
    links = [(files["name"], "/usr/bin/python3"), (files["name"], "/usr/bin/python")]
    libraries = [path for path in files["mapped"] if ".so" in os.path.basename(path)]
    more_mounts, more_links = library_mounts(libraries, files["stdlib"])
    mounts, links = mounts + more_mounts, links + more_links
    loader = program_loader(executable)
    if loader:
        mounts.append((os.path.realpath(loader), loader))
    masks = tuple(f"{library}/{name}" for name in ("site-packages", "dist-packages", "test"))
    return Interpreter(inside, tuple(mounts), masks, tuple(links), files["stdlib"])


@dataclass(frozen=True, slots=True)
class Packages:
    """Installed packages that programs may import."""

    names: tuple[str, ...] = ()  # what is imported before the first program
    folders: tuple[str, ...] = ()  # where they lie inside, in the order of `sys.path`
    # mounts, links: as those of `Interpreter`
    mounts: tuple[tuple[str, str], ...] = ()
    links: tuple[tuple[str, str], ...] = ()

    @property
    def environment(self) -> dict[str, str]:
        """What the zygote needs so that their libraries start no threads."""
        return dict(_QUIET) if self.names else {}


@lru_cache(maxsize=8)
def find_packages(python: str, names: tuple[str, ...]) -> Packages:
    """Returns packages' folders and libraries. Raises SandboxUnavailable: this Python cannot import one."""
    if not names:
        return Packages()
    folders = [
        path
        for path in dict.fromkeys(map(os.path.abspath, sys.path))
        if os.path.isdir(path) and os.path.basename(path) in ("site-packages", "dist-packages")
    ]
    for name in names:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin and spec.submodule_search_locations:
            folders.append(os.path.dirname(os.path.dirname(os.path.abspath(spec.origin))))
    folders = [*dict.fromkeys(folders)]
    try:
        done = subprocess.run(
            [python, "-I", "-S", "-B", "-c", _PACKAGE_PROBE, json.dumps([names, folders])],
            capture_output=True,
            text=True,
            timeout=300,
            check=True,
            env=_QUIET,
            cwd="/",
        )
    except (OSError, subprocess.SubprocessError) as error:
        lines = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
        raise SandboxUnavailable(
            f"the sandbox cannot show the packages {', '.join(names)}: '{python}' does not import them "
            f"({lines[-1] if lines else 'it said nothing'})."
        ) from error
    inside = [f"{PACKAGES}/{number}" for number in range(len(folders))]
    outer = [path for path in json.loads(done.stdout) if not any(path.startswith(f"{each}/") for each in folders)]
    mounts, links = library_mounts(outer, find_interpreter(python).stdlib)
    return Packages(names, tuple(inside), (*zip(folders, inside, strict=True), *mounts), tuple(links))


@lru_cache(maxsize=1)
def pytest_packages() -> Packages:
    """Returns the files of pytest and of its imports only. Raises SandboxUnavailable: pytest is not installed."""
    folder = f"{PACKAGES}/pytest"
    mounts = []
    for name in ("pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments", "py"):
        spec = importlib.util.find_spec(name)
        if spec is None or not spec.origin:
            raise SandboxUnavailable(f"tests for pytest need the package {name}, which is not installed here.")
        origin = os.path.abspath(spec.origin)
        package = os.path.basename(origin) == "__init__.py"
        mounts.append((os.path.dirname(origin), f"{folder}/{name}") if package else (origin, f"{folder}/{name}.py"))
    return Packages(("pytest", "_pytest.config"), (folder,), tuple(mounts))


def library_mounts(paths: list[str], beneath: str = "") -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Returns where shared libraries go, and links for the other names that the linker may ask for."""
    mounts, links = [], []
    for path in paths:
        if beneath and os.path.realpath(path).startswith(os.path.realpath(beneath) + "/"):
            continue
        folder, file = os.path.split(path)
        mounts.append((path, f"{LIBRARIES}/{file}"))
        stem = file.split(".so")[0]
        for name in sorted(os.listdir(folder)):
            also = name.startswith(stem) and ".so" in name and name != file
            if also and os.path.realpath(os.path.join(folder, name)) == path:
                links.append((file, f"{LIBRARIES}/{name}"))
    return mounts, links


def program_loader(path: str) -> str:
    """Returns the dynamic linker that a 64-bit ELF program names, or "" for a static one."""
    with open(path, "rb") as file:
        head = file.read(64)
        if head[:5] != b"\x7fELF\x02":
            return ""
        [table] = struct.unpack_from("<Q", head, 32)
        size, count = struct.unpack_from("<HH", head, 54)
        for number in range(count):
            file.seek(table + number * size)
            entry = file.read(size)
            if struct.unpack_from("<I", entry)[0] == 3:  # PT_INTERP
                offset, length = struct.unpack_from("<Q", entry, 8)[0], struct.unpack_from("<Q", entry, 32)[0]
                file.seek(offset)
                return file.read(length).rstrip(b"\0").decode()
    return ""
