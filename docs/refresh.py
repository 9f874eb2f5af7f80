"""Runs the commands of a documentation page again: a page in, the same page with the outputs of today out.

    python docs/refresh.py docs/commands.md
    make reference

Commands are the indented lines that begin with "$"; they run one after the other in one empty folder. Where the page
shows an output with a line "..." in it, as many lines are kept before and after it as there are now. A line
<!-- $ command --> runs too and shows nothing: it makes what the next command needs. A command that fails is shown as
it failed; read the difference before you commit it. Below a line <!-- settings of [section] --> it writes the table of
these settings; `make reference` does so for docs/configuration.md and writes the JSON schema beside it.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import tempfile
from pathlib import Path

from grpo.core.config.reference import with_tables

_INDENT = " " * 4
_SHOWN = re.compile(r"^    \$ (?P<shown>.+)\n(?P<output>(?:    (?!\$ ).*\n|[ ]*\n(?=    (?!\$ )))*)", re.MULTILINE)
_HIDDEN = re.compile(r"^<!-- \$ (?P<hidden>.+) -->\n", re.MULTILINE)
_COMMAND = re.compile(f"{_SHOWN.pattern}|{_HIDDEN.pattern}", re.MULTILINE)


def refreshed(page: str, folder: Path) -> str:
    """Returns the page with the outputs that its commands have in `folder`."""

    def again(found: re.Match[str]) -> str:
        command = found["shown"] or found["hidden"]
        done = subprocess.run(
            command, shell=True, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        print(f"exit code {done.returncode}: {command}", flush=True)
        if found["hidden"]:
            return found[0]
        lines = shortened(done.stdout.rstrip().splitlines(), [line.strip() for line in found["output"].splitlines()])
        return "".join(f"{_INDENT}{line}".rstrip() + "\n" for line in [f"$ {command}", *lines])

    return with_tables(_COMMAND.sub(again, page))


def shortened(lines: list[str], like: list[str]) -> list[str]:
    """Returns the lines with the middle left out, if the old output `like` has a line "..."."""
    if "..." not in like:
        return lines
    before, after = like.index("..."), len(like) - like.index("...") - 1
    return lines if before + after >= len(lines) else [*lines[:before], "...", *lines[len(lines) - after :]]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=Path)
    page: Path = parser.parse_args().page
    with tempfile.TemporaryDirectory() as scratch:
        page.write_text(refreshed(page.read_text(encoding="utf-8"), Path(scratch)), encoding="utf-8")
