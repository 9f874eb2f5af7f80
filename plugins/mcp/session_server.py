"""Starts an MCP server's program in a session of its own, without a network and with only the given files.

Two threads copy between the session's streams and the descriptors of the connection.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from grpo.plugins._spec_pools import SpecPools
from grpo.plugins.agents import package_of, search_path
from grpo.plugins.errors import GrpoError, TransientError
from grpo.plugins.mcp.error_output import ErrorOutput
from grpo.plugins.mcp.servers import FOLDER, McpServer
from grpo.plugins.session import Process, Session, SessionJob, SessionPool

_PIECE = 1 << 16
_pools: SpecPools[SessionPool] = SpecPools()


class SessionServer:
    """A program that was started in a session; it is used as `ServerProcess` is."""

    def __init__(self, session: Session, process: Process) -> None:
        self._session, self._process = session, process
        self.errors = ErrorOutput(process.stderr)
        theirs, self.stdin = os.pipe()
        self.stdout, ours = os.pipe()
        self._closing = threading.Thread(target=self._close, name="grpo-mcp-end", daemon=True)
        to_it, from_it = os.fdopen(theirs, "rb", 0), os.fdopen(ours, "wb", 0)
        for source, target in ((to_it, process.stdin), (process.stdout, from_it)):
            threading.Thread(target=_copy, args=(source, target), name="grpo-mcp-copy", daemon=True).start()

    def give_files(self, files: Mapping[str, str]) -> None:
        """Writes files into the working directory. Raises SessionError, SessionLost."""
        for path, text in files.items():
            self._session.write(path, text.encode("utf-8", "surrogatepass"))

    def end(self) -> None:
        """Closes the pipes and the session, in a thread."""
        for descriptor in (self.stdin, self.stdout):
            with suppress(OSError):
                os.close(descriptor)
        self._closing.start()

    def gone(self) -> bool:
        """Returns whether the session is closed, with all that ran in it."""
        return not self._closing.is_alive()

    def _close(self) -> None:
        try:
            self._process.close()
        finally:
            self._session.close()


def start_in_session(server: McpServer) -> SessionServer:
    """Starts a server's program in a new session, which reads this Python, the program's folder and the files it names.

    Raises TransientError if it cannot be started, SandboxUnavailable if this machine cannot run the session.
    """
    assert server.machines is not None
    program = shutil.which(server.command[0], path=search_path()) or server.command[0]
    paths = [*search_path().split(os.pathsep), sys.prefix, sys.base_prefix, package_of(Path(program).resolve())]
    paths += [part for part in server.command[1:] if Path(part).is_absolute()]
    pool = _pools.of(server.session, server.machines)
    try:
        session = pool.open(SessionJob(shared=[path for path in paths if path != "/" and Path(path).exists()]))
    except GrpoError as error:
        raise TransientError(f"MCP server '{server.name}': {error}") from error
    try:
        argv = [program, *(part.replace(FOLDER, session.directory) for part in server.command[1:])]
        environment = {name: os.environ[name] for name in server.variables if name in os.environ}
        environment |= {name: text.replace(FOLDER, session.directory) for name, text in server.environment}
        return SessionServer(session, session.start(argv, env=environment))
    except BaseException as error:
        session.close()
        if isinstance(error, GrpoError):
            raise TransientError(f"MCP server '{server.name}': {error}") from error
        raise


def _copy(source: BinaryIO, target: BinaryIO) -> None:
    with source, target, suppress(OSError, ValueError, GrpoError):
        while piece := source.read(_PIECE):
            target.write(piece)
