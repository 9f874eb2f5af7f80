"""Connects the ports of a session in a container with addresses of this machine, through a relay in its network.

The relay is a container that shares only the network with the session: no program of the session can see or end it, and
it forwards only what it is told to. Its sockets are in a folder that this machine and the relay see. It shows this
machine's Python, so the engine must be on this machine.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Mapping
from typing import Any

from grpo.plugins.errors import SessionLost
from grpo.rewards.sandbox.container import remove
from grpo.rewards.session import relay
from grpo.rewards.session.docker_machine import hardened, machine_image
from grpo.rewards.session.owned import own
from grpo.rewards.session.proxy import Port, Proxy
from grpo.rewards.session.root import outermost, system_paths

FOLDER = "org.grpo.session.ports"
"""The label that names the folder of a relay's sockets."""
PLACE = "/tmp/grpo-ports-"
_START_SECONDS = 60.0
_PAUSE = 0.02
_MEMORY = 128 * 2**20
_PROCESSES = 32


class Ports:
    """The ports of the session in a container, by its id; `reach` as in `SessionJob`. Raises SessionLost: no relay."""

    def __init__(self, client: Any, session: str, reach: Mapping[int, str], proxy: Proxy) -> None:
        import docker

        self._served: list[Port] = []
        self._folder = tempfile.mkdtemp(prefix=PLACE.rpartition("/")[2], dir=PLACE.rpartition("/")[0])
        self._owner = self._listening(relay.OWNER)
        self._owner.setblocking(False)
        self._container: Any = None
        try:
            own(self._owner)
            for port, address in reach.items():
                self._served.append(proxy.serve(self._listening(str(port)), address))
            settings = hardened()
            settings["labels"] |= {FOLDER: self._folder}
            shown = (*system_paths()[0], *outermost([sys.base_prefix, relay.__file__]))
            volumes = {path: {"bind": path, "mode": "ro"} for path in shown}
            self._container = client.containers.create(
                **settings,
                image=machine_image(client),
                command=[os.path.realpath(sys.executable), "-I", "-S", relay.__file__, self._folder, *map(str, reach)],
                user=f"{os.geteuid()}:{os.getegid()}",
                network_mode=f"container:{session}",
                read_only=True,
                pids_limit=_PROCESSES,
                mem_limit=_MEMORY,
                memswap_limit=_MEMORY,
                volumes=volumes | {self._folder: {"bind": self._folder, "mode": "rw"}},
            )
            self._container.start()
            self._wait()
        except (docker.errors.DockerException, OSError) as error:
            self.close()
            raise SessionLost(f"the ports of the session cannot be reached: {error}.") from error
        except BaseException:
            self.close()
            raise

    def connected(self, number: int) -> socket.socket:
        """Returns a socket that is connected to a port of the session. Raises OSError."""
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(f"{self._folder}/{relay.IN}")
            connection.sendall(number.to_bytes(relay.NUMBER, "big"))
        except BaseException:
            connection.close()
            raise
        return connection

    def renew(self) -> None:
        """Follows the restarted container into its new network. Raises SessionLost, and the engine's own errors."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{self._folder}/{relay.IN}")
        with contextlib.suppress(BlockingIOError):
            while True:  # what the relay that ends now has kept waiting
                self._owner.accept()[0].close()
        self._container.restart(timeout=0)
        self._wait()

    def close(self) -> None:
        """Removes the relay and its sockets."""
        if self._container is not None:
            remove(self._container)
        for port in self._served:
            port.close()
        self._owner.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _listening(self, name: str) -> socket.socket:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(f"{self._folder}/{name}")
        listener.listen(128)
        return listener

    def _wait(self) -> None:
        """Waits until the relay listens. Raises SessionLost."""
        deadline = time.monotonic() + _START_SECONDS
        while True:
            try:
                self.connected(0).close()
                return
            except OSError as error:
                self._container.reload()
                if self._container.status != "running" or time.monotonic() > deadline:
                    raise SessionLost("the relay of the session's ports does not start.") from error
            time.sleep(_PAUSE)


def remove_folder(labels: Mapping[str, str]) -> None:
    """Removes the folder of a relay whose owner is gone."""
    folder = labels.get(FOLDER, "")
    if folder.startswith(PLACE):
        shutil.rmtree(folder, ignore_errors=True)
