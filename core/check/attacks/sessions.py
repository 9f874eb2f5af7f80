"""Holds hostile programs that every session must contain: they leave processes, spy on others or exhaust limits."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from grpo.core.check.attacks import BREACH, kernel_calls, table_of, tried
from grpo.plugins.errors import SessionError
from grpo.plugins.session import Exit, Session, SessionJob, SessionLimits, SessionPool

_PATIENCE = 60.0
_BRIEF = 5.0
SMALL = SessionLimits(memory_bytes=256 * 2**20, disk_bytes=32 * 2**20, processes=64, output_bytes=1 << 16)
_TABLE = table_of("sessions")
_PROGRAMS: Mapping[str, str] = _TABLE["programs"]
_LOOK = _PROGRAMS["look"]
_OF_AN_IMAGE = ("/etc/shadow", "/sys/fs/cgroup/memory")
"""What a container has of its own under these names."""
_SYSTEM = "/usr /usr/bin /usr/lib /etc / /bin /lib /opt /srv /root"


@dataclass(frozen=True, slots=True)
class SessionAttack:
    """Something hostile that is done in sessions."""

    name: str  # what it tries
    tried: Callable[[SessionPool], Iterator[str]]  # does it, and yields what got through, a line each
    needs: str = ""  # a capability of the pool without which it is not tried


def all_session_attacks() -> tuple[SessionAttack, ...]:
    """Returns every attack, in the order in which they are tried."""
    return (
        SessionAttack("a daemon that outlives its session", _daemon),
        SessionAttack("files for the next session", _files_left),
        SessionAttack("the processes, files and sockets of another session", _another_session),
        SessionAttack("secrets of the host", _secrets),
        SessionAttack("files of the host", _host_files),
        SessionAttack("a file of the host that is shared but hidden", _hidden_file, needs="shared paths"),
        SessionAttack("the network", _network),
        SessionAttack("an address beside the one that may be reached", _reach, needs="reach"),
        SessionAttack("calls of the kernel", _calls),
        SessionAttack("writing where the machine's programs are", _writing),
        SessionAttack("links and pipes in the place of files", _links),
        SessionAttack("killing everything", _killing),
        SessionAttack("fork bomb", _fork_bomb),
        SessionAttack("memory", partial(_memory, program="memory")),
        SessionAttack("memory split over children", partial(_memory, program="family")),
        SessionAttack(
            "filling the disk", partial(_disk, program="fill", most=SMALL.disk_bytes * 2), needs="disk limit"
        ),
        SessionAttack("200,000 files", partial(_disk, program="many", most=100_000), needs="file limit"),
        SessionAttack("output flood", _flood),
    )


def _opened(pool: SessionPool, **job: object) -> contextlib.closing[Session]:
    return contextlib.closing(pool.open(SessionJob(**{"limits": SMALL, **job})))  # type: ignore[arg-type]


def _python(session: Session, program: str, timeout: float = _PATIENCE) -> Exit:
    return session.run(["python3", "-c", program], timeout=timeout)


def _breaches(left: Exit) -> Iterator[str]:
    """Yields what a program got; one that did not come to its end tried nothing."""
    for line in left.stdout.split(b"\n"):
        if BREACH in line:
            yield f"it got through: {line[:300].decode(errors='replace')}"
    if not left.stdout.rstrip().endswith(b"tried"):
        why = left.problem or left.stderr.decode(errors="replace")[-200:]
        yield f"the attack did not come to its end: {left.code} {why}"


def _goes_on(session: Session) -> Iterator[str]:
    """Yields where an honest command suffers in the session of the attack."""
    session.stop()
    left = session.run(["sh", "-c", "echo honest"], timeout=_PATIENCE)
    if left.stdout != b"honest\n":
        yield f"an honest command suffered: {left.code} {left.problem or left.stderr[-120:]!r}"


def _with_mark(mark: str) -> list[str]:
    held = []
    for folder in Path("/proc").iterdir() if Path("/proc").is_dir() else ():
        if folder.name.isdecimal():
            with contextlib.suppress(OSError):
                if mark.encode() in (folder / "cmdline").read_bytes():
                    held.append(folder.name)
    return held


def _daemon(pool: SessionPool) -> Iterator[str]:
    """What a session leaves, each of several leaves: other programs of this machine mount and unmount meanwhile."""
    mark = f"mark-{secrets.token_hex(8)}"
    mounts = []
    for _ in range(3):
        before = _mounts()
        with _opened(pool) as session:
            _python(session, _PROGRAMS["daemon"].replace("MARK", repr(mark)))
            mounts.append(_mounts() - before)
    end = time.monotonic() + _BRIEF
    while (_with_mark(mark) or _left_by_each(mounts)) and time.monotonic() < end:
        time.sleep(0.05)
    if left := _with_mark(mark):
        yield f"{len(left)} processes outlive their session"
    if more := _left_by_each(mounts):
        yield f"{len(more)} mounts are left: {more[0]}"


def _left_by_each(mounts: Sequence[set[str]]) -> list[str]:
    """Returns the mounts of sessions that are there now, if there are some of each session; else none."""
    now = _mounts()
    left = [each & now for each in mounts]
    return sorted(set().union(*left)) if all(left) else []


def _mounts() -> set[str]:
    path = Path("/proc/self/mountinfo")
    return {line.split()[4] for line in path.read_text(encoding="utf-8").splitlines()} if path.exists() else set()


def _files_left(pool: SessionPool) -> Iterator[str]:
    write = "for d in . ~ /tmp /var/tmp /dev/shm /run /opt; do echo x > $d/left 2>/dev/null; done; true"
    with _opened(pool) as session:
        session.run(["sh", "-c", write], timeout=_PATIENCE)
    with _opened(pool) as session:
        look = "for d in . ~ /tmp /var/tmp /dev/shm /run /opt; do ls -a $d; done"
        if b"left" in session.run(["sh", "-c", look], timeout=_PATIENCE).stdout:
            yield "files of one session are in the next"


def _another_session(pool: SessionPool) -> Iterator[str]:
    mark = f"mark-{secrets.token_hex(8)}"
    serve = (
        "import os, socket, sys, time\n"
        "for d in ('.', '/tmp', '/dev/shm', os.path.expanduser('~')):\n"
        f"    open(d + '/{mark}', 'w').write('secret')\n"
        f"a = socket.socket(socket.AF_UNIX); a.bind('\\0{mark}'); a.listen()\n"
        "b = socket.create_server(('127.0.0.1', 45789))\nprint('ready', flush=True)\ntime.sleep(600)"
    )
    look = (
        f"import glob, os\nfor path in glob.glob('/proc/[0-9]*/cmdline'):\n"
        f"    if b'sleep(6' + b'00)' in open(path, 'rb').read(): print('BREACH', path)\n"
        f"for d in ('.', '/tmp', '/dev/shm', os.path.expanduser('~')):\n"
        f"    if os.path.exists(d + '/{mark}'): print('BREACH', d)\n"
    )
    attempts = (f"connect(socket.AF_UNIX, '\\0{mark}')", "connect(socket.AF_INET, ('127.0.0.1', 45789))")
    with (
        _opened(pool) as first,
        _opened(pool) as second,
        contextlib.closing(first.start(["python3", "-c", serve])) as server,
    ):
        if server.stdout.read(5) != b"ready":
            yield f"the first session's server did not start: {server.stderr.read(300)!r}"
        yield from _breaches(_python(second, look + tried(f"{_LOOK}\nimport socket", *attempts)))


def _secrets(pool: SessionPool) -> Iterator[str]:
    with _opened(pool) as session:
        own = _OF_AN_IMAGE if pool.capabilities().get("container") else ()
        attempts = [f"look({path!r})" for path in _TABLE["secrets"] if path not in own]
        canary = "[open(p, 'rb').read() for p in __import__('glob').glob('/proc/[0-9]*/environ')]"
        attempts.append(f"b'GRPO_CANARY' in b''.join({canary}) or None.x")
        yield from _breaches(_python(session, tried(_LOOK, *attempts)))


def _host_files(pool: SessionPool) -> Iterator[str]:
    with _opened(pool) as session:
        for secret in _secret_files():
            attempts = (f"look({str(secret.parent)!r})", f"look({str(secret)!r})")
            yield from _breaches(_python(session, tried(_LOOK, *attempts)))


def _hidden_file(pool: SessionPool) -> Iterator[str]:
    for secret in _secret_files():
        with _opened(pool, shared=[str(secret.parent)], hidden=[str(secret)]) as session:
            yield from _breaches(_python(session, tried(_LOOK, f"open({str(secret)!r}).read() or None.x")))


def _secret_files() -> Iterator[Path]:
    """Yields files that everybody may read, in folders of the host such as a run's."""
    for place in (None, *(place for place in (Path.cwd(), Path.home()) if os.access(place, os.W_OK))):
        with tempfile.TemporaryDirectory(prefix="grpo-canary-", dir=place) as folder:
            Path(folder).chmod(0o755)
            secret = Path(folder, "metrics.jsonl")
            secret.write_text("secret of the run", encoding="utf-8")
            yield secret


def _network(pool: SessionPool) -> Iterator[str]:
    name = f"grpo-{secrets.token_hex(8)}"
    with socket.create_server(("127.0.0.1", 0)) as listener, contextlib.ExitStack() as stack:
        attempts = [f"connect(socket.AF_INET, ('127.0.0.1', {listener.getsockname()[1]}))"]
        if os.uname().sysname == "Linux":
            hidden = stack.enter_context(socket.socket(socket.AF_UNIX))
            hidden.bind(f"\0{name}")
            hidden.listen()
            attempts.append(f"connect(socket.AF_UNIX, '\\0{name}')")
        attempts += ["connect(socket.AF_INET, ('169.254.169.254', 80))", "socket.getaddrinfo('example.com', 80)"]
        attempts += [
            "socket.socket(40, socket.SOCK_STREAM).connect((2, 1))",
            "connect(socket.AF_INET, ('1.1.1.1', 53))",
        ]
        with _opened(pool) as session:
            yield from _breaches(_python(session, tried(f"{_LOOK}\nimport socket", *attempts)))


def _reach(pool: SessionPool) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as gateway, socket.create_server(("127.0.0.1", 0)) as other:
        ports = [each.getsockname()[1] for each in (gateway, other)]
        with _opened(pool, reach={ports[0]: f"127.0.0.1:{ports[0]}"}) as session:
            attempt = f"connect(socket.AF_INET, ('127.0.0.1', {ports[1]}))"
            yield from _breaches(_python(session, tried(f"{_LOOK}\nimport socket", attempt)))
            ask = f"import socket; s = socket.create_connection(('127.0.0.1', {ports[0]}), 30)"
            ask += "; s.send(b'hi'); print(s.recv(9))"
            with contextlib.closing(session.start(["python3", "-c", ask])) as process:
                gateway.settimeout(_PATIENCE)
                caller, _ = gateway.accept()
                with caller:
                    caller.settimeout(_PATIENCE)
                    caller.sendall(caller.recv(2).upper())
                    if process.stdout.read(5) != b"b'HI'":
                        yield "the address that may be reached does not answer"


def _calls(pool: SessionPool) -> Iterator[str]:
    with _opened(pool) as session:
        setup, calls = kernel_calls()
        for name, text in calls.items():
            if name not in _TABLE["harmless"]:
                left = _python(session, tried(setup, text))
                if BREACH in left.stdout:
                    yield f"{name} got through: {left.stdout[:200]!r}"
        limits = "import resource\ndef raised(kind): resource.setrlimit(kind, (-1, -1)); return 'raised'"
        yield from _breaches(_python(session, tried(limits, "raised(resource.RLIMIT_NPROC)")))


def _writing(pool: SessionPool) -> Iterator[str]:
    """What a session changes of its own system must be its own: the next session and the host do not have it."""
    name = f"grpo-{secrets.token_hex(8)}"
    with _opened(pool) as session:
        write = f"for d in {_SYSTEM}; do echo x > $d/{name}; done 2>/dev/null; true"
        session.run(["sh", "-c", write], timeout=_PATIENCE)
        attempts = ("write('/proc/sys/kernel/core_pattern')", "write('/proc/sys/user/max_user_namespaces', b'9')")
        yield from _breaches(_python(session, tried(_LOOK, *attempts)))
    host = [folder for folder in _SYSTEM.split() if os.access(Path(folder, name), os.F_OK)]
    if host:
        yield f"a session wrote to the host's {host[0]}"
    with _opened(pool) as session:
        left = session.run(["sh", "-c", f"for d in {_SYSTEM}; do ls $d/{name}; done 2>/dev/null"], timeout=_PATIENCE)
        if left.stdout:
            yield f"a session wrote to what the next one sees: {left.stdout!r}"


def _links(pool: SessionPool) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder, _opened(pool) as session:
        secret = Path(folder, "secret")
        secret.write_text("secret", encoding="utf-8")
        session.run(
            ["sh", "-c", f"ln -s {secret} link; ln -s {folder} folder; mkfifo pipe; mkdir d; ln -s {secret} d/l"]
        )
        for path in ("link", "folder/secret", "pipe"):
            with contextlib.suppress(SessionError):
                yield f"reading {path!r} gave {session.read(path)[:40]!r}"
        with contextlib.suppress(SessionError):
            session.write("link", b"changed")
        if secret.read_text(encoding="utf-8") != "secret":
            yield "writing through a link changed a file of the host"
        with session.tar() as packed:
            if b"secret" in packed.read().replace(str(secret).encode(), b"").replace(b"folder", b""):
                yield "an archive has what a link points to"


def _killing(pool: SessionPool) -> Iterator[str]:
    program = "import os\nfor n in (9, 15, 19, 2, 1):\n    try: os.kill(1, n)\n    except OSError: pass\n"
    with _opened(pool) as session:
        _python(session, f"{program}os.kill(-1, 9)", _BRIEF)
        yield from _goes_on(session)


def _fork_bomb(pool: SessionPool) -> Iterator[str]:
    with _opened(pool) as session:
        left = _python(session, _PROGRAMS["fork_bomb"], _BRIEF)
        if not left.timed_out:
            yield f"a fork bomb ended by itself: {left.code} {left.stderr[-120:]!r}"
        yield from _goes_on(session)
        most = _python(session, _PROGRAMS["count"], _PATIENCE).stdout.split()
        if not most or int(most[0]) > SMALL.processes + 32:
            yield f"{most} processes live at once where {SMALL.processes} may"


def _memory(pool: SessionPool, program: str) -> Iterator[str]:
    with _opened(pool) as session:
        left = _python(session, _PROGRAMS[program])
        held = session.run(["sh", "-c", "cat held 2>/dev/null"], timeout=_PATIENCE).stdout
        if left.code == 0 and len(held) > 4:
            yield f"programs held more than the limit of {SMALL.memory_bytes >> 20} MB: {held!r}"
        yield from _goes_on(session)


def _disk(pool: SessionPool, program: str, most: int) -> Iterator[str]:
    with _opened(pool) as session:
        left = _python(session, _PROGRAMS[program])
        if left.code == 0 and int(left.stdout or b"0") > most:
            yield f"it wrote {left.stdout!r}, and at most {most} were expected"
        yield from _goes_on(session)


def _flood(pool: SessionPool) -> Iterator[str]:
    with _opened(pool) as session:
        left = session.run(["sh", "-c", "cat /dev/zero"], timeout=1.0)
        if len(left.stdout) > SMALL.output_bytes or not left.omitted:
            yield f"{len(left.stdout)} bytes of a flood are kept, {left.omitted} are omitted"
        yield from _goes_on(session)
