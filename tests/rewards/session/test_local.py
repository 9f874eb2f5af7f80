"""Local sessions: what the contract promises, that nothing of one is left, and ends that nobody asked for."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from patience import PATIENCE

from grpo.plugins.child_process import ChildProcess
from grpo.plugins.errors import SandboxUnavailable, SessionError, SessionLost
from grpo.plugins.session import Session, SessionJob, SessionLimits
from grpo.rewards.sandbox import cgroup
from grpo.rewards.session.pool import LocalPool

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the session 'local' needs Linux")


@pytest.fixture(scope="module")
def pool() -> Iterator[LocalPool]:
    pool = LocalPool()
    yield pool
    pool.close()


@contextlib.contextmanager
def opened(pool: LocalPool, **job: object) -> Iterator[Session]:
    session = pool.open(SessionJob(**job))  # type: ignore[arg-type]
    try:
        yield session
    finally:
        session.close()


def processes_with(mark: str) -> list[str]:
    processes = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with contextlib.suppress(OSError):
                if mark.encode() in (folder / "cmdline").read_bytes():
                    processes.append(folder.name)
    return processes


def wait_until_there(mark: str, count: int = 1) -> None:
    """A program that is just being started shows no command line for a moment."""
    end = time.monotonic() + PATIENCE
    while len(processes_with(mark)) < count:
        assert time.monotonic() < end, f"{len(processes_with(mark))} processes of {count} are there"
        time.sleep(0.02)


def wait_until_gone(mark: str) -> None:
    end = time.monotonic() + PATIENCE
    while processes_with(mark):
        assert time.monotonic() < end, f"processes outlive their session: {processes_with(mark)}"
        time.sleep(0.02)


def test_two_sessions_have_the_same_paths_and_nothing_in_common(pool: LocalPool) -> None:
    with opened(pool, files={"a.txt": b"1"}) as one, opened(pool, files={"~/b.txt": b"2"}) as other:
        for session in (one, other):
            assert session.run(["sh", "-c", "pwd; echo ~"]).stdout == b"/workspace\n/home/agent\n"
        one.write("/tmp/mine", b"x")
        assert other.run(["ls", "/tmp", "."]).stdout == b".:\n\n/tmp:\n"
        assert other.read("~/b.txt") == b"2"


def test_a_run_ends_with_its_command_and_what_that_started_lives_on_until_stop(pool: LocalPool) -> None:
    mark = secrets.token_hex(8)
    with opened(pool) as session:
        left = session.run(["sh", "-c", f"sh -c 'sleep 600' {mark} & echo begun"], timeout=PATIENCE)
        assert (left.code, left.stdout) == (0, b"begun\n")
        wait_until_there(mark)
        session.stop()
        assert not processes_with(mark)
        assert session.run(["echo", "on"]).stdout == b"on\n"


def test_the_time_of_a_session_ends_its_programs_and_keeps_its_files(pool: LocalPool) -> None:
    with opened(pool, limits=SessionLimits(seconds=0.5)) as session:
        left = session.run(["sh", "-c", "echo kept > a; sleep 600"])
        assert (left.timed_out, left.code) == (True, -signal.SIGKILL)
        late = session.run(["true"])
        assert (late.timed_out, late.code, late.problem) == (True, None, "the time of the session is up")
        assert session.read("a") == b"kept\n"
        with pytest.raises(SessionError, match="the time of the session is up"):
            session.start(["true"])


@pytest.mark.parametrize(
    ("files", "problem"),
    [({"../out": b""}, "cannot be the path"), ({"": b""}, "is no path"), ({"a/": b""}, "cannot be the path")],
)
def test_files_that_lead_elsewhere_are_refused(pool: LocalPool, files: dict[str, bytes], problem: str) -> None:
    with pytest.raises(SessionError, match=problem):
        pool.open(SessionJob(files=files))


def test_what_a_local_session_cannot_give_is_refused(pool: LocalPool) -> None:
    with pytest.raises(SessionError, match="has no images"):
        pool.open(SessionJob(image="debian"))
    with pytest.raises(SessionError, match="cannot be shared"):
        pool.open(SessionJob(shared=["/no/such/path"]))


def test_a_shared_path_is_read_only_and_at_its_own_place(pool: LocalPool, tmp_path: Path) -> None:
    (tmp_path / "tool").write_text("x", encoding="utf-8")
    tmp_path.chmod(0o755)
    with opened(pool, shared=[str(tmp_path)]) as session:
        left = session.run(["sh", "-c", f"cat {tmp_path}/tool; echo y > {tmp_path}/tool"])
        assert left.stdout == b"x"
        assert b"Read-only" in left.stderr
    assert (tmp_path / "tool").read_text(encoding="utf-8") == "x"


def test_a_program_that_cannot_start_says_why(pool: LocalPool) -> None:
    with opened(pool, files={"data": b"x"}) as session:
        for argv, why in (
            (["./data"], "Permission denied"),
            (["nothing"], "No such file"),
            ([], "no program is named"),
        ):
            left = session.run(argv)
            assert left.code is None
            assert why in left.problem
        with pytest.raises(SessionError, match="No such file"):
            session.start(["nothing"])


def test_a_large_request_and_a_large_output_arrive_whole(pool: LocalPool) -> None:
    text = "é" * 60_000
    with opened(pool, limits=SessionLimits(output_bytes=2**20)) as session:
        left = session.run(["sh", "-c", f"printf %s '{text}'; cat"], stdin=b"\0" * 500_000)
        assert left.stdout == text.encode() + b"\0" * 500_000
        assert left.omitted == 0


def test_many_threads_share_a_session(pool: LocalPool) -> None:
    with opened(pool) as session:
        texts: list[bytes] = []
        threads = [
            threading.Thread(target=lambda n=n: texts.append(session.run(["echo", str(n)]).stdout)) for n in range(16)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(texts) == sorted(b"%d\n" % n for n in range(16))


def test_a_snapshot_keeps_modes_links_and_times_and_ends_with_its_session(pool: LocalPool) -> None:
    make = (
        "mkdir d; echo x > d/f; chmod 640 d/f; ln d/f hard; ln -s d/f soft; touch -d @1000 d/f; chmod 000 d; mkfifo p"
    )
    with opened(pool) as session:
        assert session.run(["sh", "-c", make]).code == 0
        with contextlib.closing(session.fork(session.snapshot())) as copy:
            look = "stat -c '%a' d; chmod 700 d; stat -c '%a %Y %h' d/f; readlink soft; stat -c %F p"
            assert copy.run(["sh", "-c", look]).stdout == b"0\n640 1000 2\nd/f\nfifo\n"


def test_a_session_that_is_closed_or_killed_is_lost_and_no_result(pool: LocalPool) -> None:
    session = pool.open(SessionJob())
    session.close()
    with pytest.raises(SessionLost, match="closed"):
        session.run(["true"])
    with opened(pool) as killed:
        started = killed.start(["sleep", "600"])
        [keeper] = children_of(pool._launcher.pid)
        os.kill(keeper, signal.SIGKILL)
        with pytest.raises(SessionLost, match="ended"):
            started.wait(PATIENCE)
        with pytest.raises(SessionLost, match="from outside"):
            killed.read("x")
        started.close()


def children_of(process: int) -> list[int]:
    return [int(pid) for pid in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def test_a_launcher_that_is_killed_takes_its_sessions_along_and_is_replaced() -> None:
    pool = LocalPool()
    mark = secrets.token_hex(8)
    try:
        session = pool.open(SessionJob())
        session.run(["sh", "-c", f"sh -c 'sleep 600' {mark} &"])
        os.kill(pool._launcher.pid, signal.SIGKILL)
        wait_until_gone(mark)
        with pytest.raises(SessionLost):
            session.run(["true"])
        session.close()
        with opened(pool) as another:
            assert another.run(["true"]).code == 0
    finally:
        pool.close()


def test_a_pool_whose_launchers_are_killed_blames_no_setting_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(pool: LocalPool) -> ChildProcess:
        launcher = launched(pool)
        os.kill(launcher.pid, signal.SIGKILL)
        return launcher

    launched = LocalPool._launched
    monkeypatch.setattr(LocalPool, "_launched", killed)
    with pytest.raises(SandboxUnavailable, match="helper process was killed") as caught:
        LocalPool()
    assert "namespaces" not in str(caught.value)


def test_nothing_is_left_when_the_owner_is_killed() -> None:
    mark = secrets.token_hex(8)
    program = (
        "import sys, time\nfrom grpo.plugins.session import SessionJob\n"
        "from grpo.rewards.session.pool import LocalPool\n"
        "pool = LocalPool()\nsessions = [pool.open(SessionJob()) for _ in range(2)]\nfor session in sessions:\n"
        "    session.run(['sh', '-c', '(setsid sh -c \"sleep 600\" ' + sys.argv[1] + ' &)'])\n"
        "print('ready', flush=True)\ntime.sleep(600)"
    )
    owner = subprocess.Popen([sys.executable, "-c", program, mark], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    with owner:
        try:
            assert owner.stdout.readline() == "ready\n"
            wait_until_there(mark, count=3)  # the owner has the mark, too
        finally:
            owner.kill()
    wait_until_gone(mark)
    end = time.monotonic() + PATIENCE
    while groups_of(owner.pid):
        assert time.monotonic() < end
        time.sleep(0.02)


def groups_of(process: int) -> list[Path]:
    folders = {Path(folder) for folder in cgroup.places().values()}
    return [group for folder in folders for group in folder.glob(f"grpo-sandbox-{process}-*")]


def test_a_forked_process_of_the_owner_does_not_keep_a_session_alive(pool: LocalPool) -> None:
    mark = secrets.token_hex(8)
    session = pool.open(SessionJob())
    session.run(["sh", "-c", f"sh -c 'sleep 600' {mark} &"])
    wait_until_there(mark)
    child = os.fork()
    if child == 0:
        time.sleep(600)
        os._exit(0)
    try:
        session._control.close()
        wait_until_gone(mark)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        session.close()


def test_a_port_of_a_session_can_be_reached_and_another_sessions_cannot(pool: LocalPool) -> None:
    serve = (
        "import socket\ns = socket.create_server(('127.0.0.1', 9000))\nprint('up', flush=True)\n"
        "while True:\n    c, _ = s.accept()\n    c.sendall(c.recv(100).upper())\n    c.close()"
    )
    with opened(pool) as session, opened(pool) as other:
        server = session.start(["python3", "-c", serve])
        assert server.stdout.read(3) == b"up\n"
        assert ask(session.port(9000), b"hello") == b"HELLO"
        assert ask(other.port(9000), b"hello") == b""
        server.close()


def ask(address: str, text: bytes) -> bytes:
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), PATIENCE) as connection, contextlib.suppress(OSError):
        connection.sendall(text)
        connection.shutdown(socket.SHUT_WR)
        answer = b""
        while piece := connection.recv(100):
            answer += piece
        return answer
    return b""


def test_what_is_hidden_is_seen_nowhere_and_what_is_shared_in_it_is(pool: LocalPool, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    for name in ("all/tasks/gold", "all/tasks/agent.py", "all/module.py", "all/one.jsonl"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (tmp_path / "link").symlink_to(tmp_path / "all")
    whole, link = str(tmp_path / "all"), str(tmp_path / "link")
    hidden = [f"{link}/tasks", f"{whole}/one.jsonl"]
    shared = [whole, link, f"{whole}/tasks/agent.py"]
    with opened(pool, shared=shared, hidden=hidden) as session:
        names = session.run(["find", whole, f"{link}/", "-name", "gold"])
        texts = session.run(["sh", "-c", f"cat {whole}/* {link}/* {whole}/tasks/agent.py 2> /dev/null"])
    assert names.stdout == b""
    assert texts.stdout == b"all/module.pyall/module.pyall/tasks/agent.py"


def test_what_is_hidden_among_the_systems_files_is_not_seen(pool: LocalPool) -> None:
    folder = os.path.realpath(json.__path__[0])
    if not folder.startswith("/usr/"):
        folder = "/usr/share"
    with opened(pool, hidden=[folder]) as session:
        assert session.run(["ls", "-A", folder]).stdout == b""


@pytest.mark.parametrize(
    "command",
    [
        "mv /bin /own || rm /bin",
        "mv /lib /own || rm /lib",
        "mv /etc /own",
        "mv /dev /own",
        "echo /workspace/own.so > /etc/ld.so.preload; [ -s /etc/ld.so.preload ]",
        "rm -f /etc/ld.so.preload && echo /workspace/own.so > /etc/ld.so.preload",
        "for link in $(find /usr/lib/python3* -name sitecustomize.py); do\n"
        "mkdir -p $(dirname $(readlink -m $link)) && echo 'print(1)' > $link && exit 0; done; exit 1",
    ],
)
def test_what_programs_read_when_they_start_cannot_be_replaced(pool: LocalPool, command: str) -> None:
    with opened(pool) as session:
        assert session.run(["bash", "-c", command]).code != 0
        assert session.run(["bash", "-c", "echo on && touch /etc/own /own"]).stdout == b"on\n"


def test_a_file_with_holes_that_is_larger_than_the_session_is_not_read(pool: LocalPool) -> None:
    with opened(pool) as session:
        session.run(["truncate", "-s", "1T", "big"])
        with pytest.raises(SessionError, match="more than the session's files may have"):
            session.read("big")


def test_a_program_traces_what_it_starts_and_nothing_that_runs(pool: LocalPool) -> None:
    attach = "import ctypes, sys; print(ctypes.CDLL(None).ptrace(int(sys.argv[1], 0), int(sys.argv[2]), 0, 0))"
    with opened(pool) as session:
        for request in ("16", "0x4206"):
            left = session.run(["sh", "-c", f'sleep 60 & python3 -c "{attach}" {request} $!; kill $!'])
            assert left.stdout == b"-1\n"
        assert session.run(["python3", "-c", attach, "0", "0"]).stdout == b"0\n"


def test_a_port_goes_with_its_session_and_takes_some_connections_at_once(pool: LocalPool) -> None:
    flood = "import socket, sys\nheld = []\nfor _ in range(100):\n    held.append(socket.socket())\n"
    flood += "    held[-1].setblocking(False)\n    held[-1].connect_ex(('127.0.0.1', int(sys.argv[1])))\ninput()"
    with socket.create_server(("127.0.0.1", 0)) as gateway:
        port = gateway.getsockname()[1]
        with opened(pool, reach={port: f"127.0.0.1:{port}"}) as session:
            process = session.start(["python3", "-c", flood, str(port)])
            gateway.settimeout(PATIENCE)
            callers = [gateway.accept()[0] for _ in range(32)]
            gateway.settimeout(0.5)
            with pytest.raises(TimeoutError):
                gateway.accept()
            for caller in callers:
                caller.close()
            process.close()
        held = len(list(Path("/proc/self/fd").iterdir()))
        for _ in range(3):
            with opened(pool, reach={port: f"127.0.0.1:{port}"}) as session:
                session.port(80)
        assert len(list(Path("/proc/self/fd").iterdir())) == held


def test_a_program_has_its_streams_and_no_socket_of_its_session(pool: LocalPool) -> None:
    listing = ["python3", "-c", "import os\nprint(sorted(map(int, os.listdir('/proc/self/fd'))))"]
    streams = b"[0, 1, 2, 3]\n"  # the last one is the listing's
    with opened(pool) as session, contextlib.closing(session.start(listing)) as process:
        assert session.run(listing).stdout == streams
        assert process.stdout.read(100) == streams


def test_no_program_reaches_the_host_of_a_virtual_machine(pool: LocalPool) -> None:
    code = "import socket\ntry:\n    socket.socket(socket.AF_VSOCK)\nexcept PermissionError:\n    print('refused')"
    with opened(pool) as session:
        assert session.run(["python3", "-c", code]).stdout == b"refused\n"


def test_a_file_that_its_owner_may_not_read_is_packed_with_its_mode(pool: LocalPool) -> None:
    with opened(pool) as session:
        session.run(["sh", "-c", "echo 1 > secret; chmod 000 secret"])
        with session.tar() as packed, tarfile.open(fileobj=packed) as archive:
            entry = archive.getmember("workspace/secret")
            content = archive.extractfile(entry)
            assert content is not None
            assert (entry.mode, content.read()) == (0, b"1\n")
        assert session.run(["stat", "-c", "%a", "secret"]).stdout == b"0\n"
