"""Starts the process of an MCP server, with pipes to its standard streams."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any

from grpo.plugins.agents import search_path
from grpo.plugins.child_process import ChildProcess, receive_message
from grpo.plugins.errors import TransientError
from grpo.plugins.mcp.error_output import ErrorOutput
from grpo.plugins.mcp.servers import FOLDER, STARTING, McpServer

_GIVEN = ("HOME", "LANG", "LC_ALL", "USER", "LOGNAME", "TZ", "SSL_CERT_FILE")
_WORK, _TEMPORARY = "work", "tmp"
_ENDING = 2.0  # seconds for a guard without a server
_MOST_FILES, _MOST_TEXT = 1000, 16 << 20


class ServerProcess:
    """A started program, with pipes `stdin` and `stdout` until `end`, and its working directory `folder`."""

    def __init__(self, child: ChildProcess, stdin: int, stdout: int, stderr: int, home: Path) -> None:
        self.stdin, self.stdout, self.folder = stdin, stdout, str(home / _WORK)
        self._home = home
        self._child = child
        self.errors = ErrorOutput(os.fdopen(stderr, "rb", 0))

    def give_files(self, files: Mapping[str, str]) -> None:
        """Writes files below the working directory. Raises OSError."""
        for path, text in files.items():
            place = Path(self.folder, path)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, encoding="utf-8", errors="surrogatepass", newline="")

    def end(self) -> None:
        """Closes the pipes; the program, and all that it started, then end within moments."""
        for descriptor in (self.stdin, self.stdout):
            with suppress(OSError):
                os.close(descriptor)
        self._child.channel.close()

    def gone(self) -> bool:
        """Returns whether the program and all that it started are dead; removes their folder."""
        if not self._child.gone():
            return False
        self._child.reap()
        shutil.rmtree(self._home, ignore_errors=True)  # a guard that was killed has not
        return True


def start_server(server: McpServer) -> ServerProcess:
    """Starts the program of a server in an empty folder of its own. Raises TransientError."""
    home = Path(tempfile.mkdtemp(prefix="grpo-mcp-")).resolve()
    folder = str(home / _WORK)
    for name in (_WORK, _TEMPORARY):
        (home / name).mkdir()
    argv = [part.replace(FOLDER, folder) for part in server.command]
    environment = {
        "PATH": search_path(),
        "TMPDIR": str(home / _TEMPORARY),
        **{name: os.environ[name] for name in (*_GIVEN, *server.variables) if name in os.environ},
        **{name: text.replace(FOLDER, folder) for name, text in server.environment},
    }
    pipes = [os.pipe() for _ in range(3)]
    theirs = [pipes[0][0], pipes[1][1], pipes[2][1]]
    ours = [pipes[0][1], pipes[1][0], pipes[2][0]]
    try:
        child = ChildProcess(
            "grpo.plugins.mcp.guard",
            [argv, environment, str(home), folder, theirs],
            environment={"PATH": search_path()},
            descriptors=theirs,
        )
    finally:
        for descriptor in theirs:
            os.close(descriptor)
    process = ServerProcess(child, ours[0], ours[1], ours[2], home)
    child.channel.settimeout(STARTING)
    try:
        problem: str = json.loads(receive_message(child.channel))
    except OSError as error:
        problem = f"its guard did not start: {error}"
    if problem:
        process.end()
        child.end(_ENDING)
        shutil.rmtree(home, ignore_errors=True)
        raise TransientError(f"MCP server '{server.name}': {problem}")
    return process


def refuse_bad_files(files: Any) -> None:
    """Raises ValueError unless it maps paths below the directory to texts, within the limit of size."""
    if not isinstance(files, Mapping) or not all(isinstance(text, str) for pair in files.items() for text in pair):
        raise ValueError("it does not map texts to texts")
    for path in files:
        parts = PurePosixPath(path).parts
        if not parts or parts[0] == "/" or ".." in parts or "\0" in path or path.endswith("/"):
            raise ValueError(f"the path {path!r} is not that of a file below the working directory")
    if len(files) > _MOST_FILES or sum(map(len, files.values())) > _MOST_TEXT:
        raise ValueError(f"there are more than {_MOST_FILES} files or {_MOST_TEXT} characters")
