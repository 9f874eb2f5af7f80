"""Checks a session against its contract: commands, files, limits, snapshots, and that nothing remains at its end."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from functools import partial

from grpo.core.check.attacks.sessions import SessionAttack, all_session_attacks
from grpo.core.check.pool import try_pool
from grpo.core.check.report import Findings, Report, title_of
from grpo.plugins._spec.binding import BoundSession
from grpo.plugins.errors import SessionError, with_article
from grpo.plugins.host import bound_of
from grpo.plugins.session import Exit, Process, Session, SessionJob, SessionLimits, SessionPool
from grpo.plugins.specs import SessionSpec

_PATIENCE = 60.0
_LIMITS = SessionLimits(memory_bytes=256 * 2**20, disk_bytes=32 * 2**20, processes=64, output_bytes=1000)
_JOB = SessionJob(files={"a/b.txt": b"x\n", "~/c.txt": b"y\n"}, limits=_LIMITS)


def check_session(
    session: str | SessionSpec | BoundSession, *, attacks: Iterable[SessionAttack] | None = None
) -> Report:
    """Checks a session: a SPEC ("local"), a `SessionSpec` or a bound session.

    `attacks`: the hostile programs to run; default: all. Returns what does not hold; whatever the session does, nothing
    is raised on its account. Raises UsageError for a SPEC that names no session, or options that it does not take;
    SandboxUnavailable if this machine cannot run it.
    """
    bound = bound_of(session, BoundSession)
    findings = Findings()

    def use(pool: SessionPool) -> None:
        check = _Check(pool, findings)
        check.all()
        for attack in all_session_attacks() if attacks is None else attacks:
            check.attempt(f"attack: {attack.name}", attack.needs, attack.tried)

    try_pool(bound.make, SessionPool, use, findings)
    return findings.report(title_of(bound))


class _Check:
    def __init__(self, pool: SessionPool, findings: Findings) -> None:
        self._pool, self._findings = pool, findings
        self._capable = dict(pool.capabilities())

    def all(self) -> None:
        checks: tuple[tuple[str, str, Callable[[Session], Iterator[str]]], ...] = (
            ("commands", "", _commands),
            ("files", "", _files),
            ("servers", "", _servers),
            ("time", "", _time),
            ("stop", "", _stop),
            ("snapshot and fork", "snapshot", _snapshot),
            ("ports", "port", _ports),
        )
        for relation, needs, check in checks:
            self.attempt(relation, needs, partial(_in_session, check))

    def attempt(self, relation: str, needs: str, check: Callable[[SessionPool], Iterator[str]]) -> None:
        """Runs a check, unless the pool lacks the capability that it needs; whatever it raises is a finding."""
        if needs and not self._capable.get(needs):
            self._findings.not_tried(f"{relation}: these sessions have no {needs}")
            return
        try:
            self._findings.tried(relation, check(self._pool))
        except Exception as error:
            self._findings.add("error", relation, f"it raised {type(error).__name__}: {error}")


def _in_session(check: Callable[[Session], Iterator[str]], pool: SessionPool) -> Iterator[str]:
    session = pool.open(_JOB)
    try:
        yield from check(session)
    finally:
        session.close()
        session.close()  # twice is allowed


def _commands(session: Session) -> Iterator[str]:
    expected: tuple[tuple[str, list[str], int, bytes], ...] = (
        ("the working directory", ["pwd"], 0, f"{session.directory}\n".encode()),
        ("HOME", ["sh", "-c", "echo $HOME"], 0, f"{session.home}\n".encode()),
        ("exit code 7", ["sh", "-c", "echo so far; exit 7"], 7, b"so far\n"),
        ("arguments as they are", ["printf", "%s", "a b'\"$HOME"], 0, b"a b'\"$HOME"),
        ("a signal", ["sh", "-c", "kill -9 $$"], -9, b""),
    )
    for name, argv, code, stdout in expected:
        left = session.run(argv, timeout=_PATIENCE)
        if (left.code, left.stdout) != (code, stdout):
            yield f"{name}: expected {code} {stdout!r}, got {_words(left)}"
    left = session.run(["sh", "-c", "cat; echo $X >&2"], stdin=b"in\0\xff", env={"X": "é"}, timeout=_PATIENCE)
    if (left.stdout, left.stderr) != (b"in\0\xff", "é\n".encode()):
        yield f"input and a variable: {_words(left)}"
    left = session.run(["sh", "-c", "head -c 3000 /dev/zero"], timeout=_PATIENCE)
    if len(left.stdout) != _LIMITS.output_bytes or left.omitted != 3000 - _LIMITS.output_bytes:
        yield f"output over its limit: {len(left.stdout)} bytes kept and {left.omitted} omitted of 3000"
    left = session.run(["no-such-program"], timeout=_PATIENCE)
    if left.code is not None or not left.problem:
        yield f"a program that is not there: {_words(left)}"
    left = session.run(["sh", "-c", "env"], timeout=_PATIENCE)
    if b"GRPO_CANARY" in left.stdout:
        yield "programs see the variables of the host"


def _files(session: Session) -> Iterator[str]:
    left = session.run(["sh", "-c", "cat a/b.txt ~/c.txt; echo new > d; chmod 755 d; ln -s /etc/passwd l"])
    if left.stdout != b"x\ny\n":
        yield f"the files of the job: {_words(left)}"
    session.write("e/f.bin", bytes(range(256)) * 4096)
    if session.read("e/f.bin") != bytes(range(256)) * 4096 or session.read(f"{session.directory}/d") != b"new\n":
        yield "a file that was written is not read as it was"
    for path in ("nothing", "e", "/proc/self/environ"):
        with suppress(SessionError):
            session.read(path)
            yield f"reading {path!r} raises no SessionError"
    with session.tar() as packed, tarfile.open(fileobj=io.BytesIO(packed.read())) as archive:
        names = {name.removeprefix("./").partition("/")[2] for name in archive.getnames()}
        links = {entry.name.rpartition("/")[2]: entry.linkname for entry in archive if entry.issym()}
    if not {"a/b.txt", "d", "e/f.bin"} <= names or links.get("l") != "/etc/passwd":
        yield f"the archive has {sorted(names)} and the links {links}"


def _servers(session: Session) -> Iterator[str]:
    with closing(session.start(["cat"])) as process:
        if not isinstance(process, Process):
            yield f"start returned {with_article(type(process).__name__)}, which is not a Process"
        process.stdin.write(b"one\n")
        if process.stdout.read(4) != b"one\n" or process.wait(0.0) is not None:
            yield "a started program does not answer and go on"
        process.stdin.close()
        if process.wait(_PATIENCE) != 0:
            yield "a started program does not end with its input"


def _time(session: Session) -> Iterator[str]:
    left = session.run(["sh", "-c", "echo so far; sleep 600"], timeout=1.0)
    if not left.timed_out or left.stdout != b"so far\n":
        yield f"a command over its time: {_words(left)}"
    if session.run(["echo", "on"], timeout=_PATIENCE).stdout != b"on\n":
        yield "the session does not go on after a command over its time"


def _stop(session: Session) -> Iterator[str]:
    marked = "grep -l stays-after-a-stop /proc/[0-9]*/environ 2>/dev/null | wc -l"
    session.run(
        ["sh", "-c", "echo kept > kept; (M=stays-after-a-stop setsid sleep 600 &) ; sleep 0.1"], timeout=_PATIENCE
    )
    before = session.run(["sh", "-c", marked], timeout=_PATIENCE)
    session.stop()
    left = session.run(["sh", "-c", f"cat kept; {marked}"], timeout=_PATIENCE)
    if left.stdout.split() != [b"kept", b"0"] or before.stdout.strip() != b"1":
        yield f"a file and programs after a stop: {_words(left)}; programs before: {_words(before)}"


def _snapshot(session: Session) -> Iterator[str]:
    session.run(["sh", "-c", "echo 1 > state; mkdir -p deep/er; ln -s state link; echo h > ~/h; echo t > /tmp/t"])
    kept = session.snapshot()
    session.run(["sh", "-c", "echo 2 > state; rm -r deep"], timeout=_PATIENCE)
    copies = [session.fork(kept) for _ in range(2)]
    try:
        copies[0].write("state", b"3\n")
        texts = [each.run(["sh", "-c", "cat state link ~/h /tmp/t; ls deep"]).stdout for each in (*copies, session)]
        if texts != [b"3\n3\nh\nt\ner\n", b"1\n1\nh\nt\ner\n", b"2\n2\nh\nt\n"]:
            yield f"two forks and the session that goes on: {texts}"
        with suppress(SessionError):
            session.fork("no such snapshot")
            yield "a fork of no snapshot raises no SessionError"
    finally:
        for copy in copies:
            copy.close()


def _ports(session: Session) -> Iterator[str]:
    import urllib.request

    session.write("index.html", b"page")
    with closing(session.start(["python3", "-u", "-m", "http.server", "8123", "--bind", "127.0.0.1"])) as server:
        server.stdout.read(7)  # "Serving": it listens
        with urllib.request.urlopen(f"http://{session.port(8123)}/index.html", timeout=_PATIENCE) as answer:
            if answer.read() != b"page":
                yield "a server of the session answers something else"


def _words(left: Exit) -> str:
    more = left.problem or left.stderr.decode(errors="replace").strip()[-120:]
    more = ", timed out" * left.timed_out + (f", {more}" if more else "")
    return f"{left.code}, stdout {left.stdout[:80]!r}{more}"
