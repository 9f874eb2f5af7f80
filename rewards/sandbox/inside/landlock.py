"""Makes a Landlock ruleset that limits what a program may do with files and the network.

Beneath the root it may read and execute, beneath its own folder it may do everything but make device files; it may use
no TCP port, no abstract socket and no signal to the outside. Mounts and namespaces forbid the same, so that a hole in
one is closed by the other.
"""

from __future__ import annotations

import os

from grpo.plugins.kernel import landlock_allow, landlock_ruleset, landlock_version

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_REMOVE_DIR, _REMOVE_FILE, _MAKE_CHAR, _MAKE_DIR, _MAKE_REG = 16, 32, 64, 128, 256
_MAKE_SOCK, _MAKE_FIFO, _MAKE_BLOCK, _MAKE_SYM, _REFER, _TRUNCATE, _IOCTL = 512, 1024, 2048, 4096, 8192, 16384, 32768
_READING = _EXECUTE | _READ_FILE | _READ_DIR
_OWN = (
    _READING | _WRITE_FILE | _REMOVE_DIR | _REMOVE_FILE | _MAKE_DIR | _MAKE_REG | _MAKE_FIFO | _MAKE_SYM
    | _REFER | _TRUNCATE
)  # fmt: skip
_BIND_TCP_CONNECT_TCP = 3
_ABSTRACT_SOCKET_SIGNAL = 3
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")


def ruleset(own: str) -> int:
    """Returns the descriptor of the ruleset for a program whose own folder is `own`."""
    version = landlock_version()
    handled = 8191 | (_REFER if version >= 2 else 0) | (_TRUNCATE if version >= 3 else 0)
    handled |= _IOCTL if version >= 5 else 0
    network = _BIND_TCP_CONNECT_TCP if version >= 4 else 0
    scopes = _ABSTRACT_SOCKET_SIGNAL if version >= 6 else 0
    rules = landlock_ruleset(handled, network, scopes)
    for path, accesses in (("/", _READING), (own, _OWN), *((device, _READ_FILE | _WRITE_FILE) for device in _DEVICES)):
        if not os.path.exists(path):
            continue
        folder = os.open(path, os.O_PATH | os.O_CLOEXEC)
        landlock_allow(rules, folder, accesses & handled)
        os.close(folder)
    return rules
