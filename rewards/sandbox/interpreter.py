"""What an interpreter needs to run: its executable in, the files to show inside the sandbox out.

The executable, its standard library without site packages, and exactly those shared libraries that the interpreter and
its extension modules map, found by letting it import them all once. Inside, everything lies where a system Python
has it, so that no path of the host shows.
"""

from __future__ import annotations

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


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python and its files.

    Attributes:
        executable: its path inside.
        mounts: path outside and path inside, of files and folders.
        masks: folders inside that shall be empty.
        links: what a link points to, and its path inside.
    """

    executable: str
    mounts: tuple[tuple[str, str], ...]
    masks: tuple[str, ...]
    links: tuple[tuple[str, str], ...]


def default_python() -> str:
    """Returns the Python that runs this process, outside of its virtual environment."""
    return str(getattr(sys, "_base_executable", "") or sys.executable)


@lru_cache(maxsize=8)
def find_interpreter(python: str) -> Interpreter:
    """Returns the files of a Python.

    Raises:
        SandboxUnavailable: there is no such Python, or it is too old.
    """
    try:
        done = subprocess.run(
            [python, "-I", "-S", "-c", _PROBE], capture_output=True, text=True, timeout=60, check=True, env={}
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise SandboxUnavailable(
            f"the interpreter '{python}' cannot be run ({error}). Name another with the option python=/path/to/python3."
        ) from error
    found = json.loads(done.stdout)
    if tuple(found["version"]) < _OLDEST:
        raise SandboxUnavailable(f"'{python}' is older than Python 3.9. Name a newer one: python=/path/to/python3.")
    executable = found["executable"]
    inside = f"/usr/bin/{found['name']}"
    library = f"/usr/{found['folder']}/{found['name']}"
    mounts = [(executable, inside), (found["stdlib"], library)]
    links = [(found["name"], "/usr/bin/python3"), (found["name"], "/usr/bin/python")]
    libraries = [path for path in found["mapped"] if ".so" in os.path.basename(path)]
    more_mounts, more_links = library_mounts(libraries, found["stdlib"])
    mounts, links = mounts + more_mounts, links + more_links
    loader = program_loader(executable)
    if loader:
        mounts.append((os.path.realpath(loader), loader))
    masks = tuple(f"{library}/{name}" for name in ("site-packages", "dist-packages", "test"))
    return Interpreter(inside, tuple(mounts), masks, tuple(links))


def library_mounts(paths: list[str], beneath: str = "") -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Returns where shared libraries go, and links for the other names that the linker may ask for.

    Args:
        paths: the libraries, as the kernel names them.
        beneath: a folder that is shown anyway.
    """
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
