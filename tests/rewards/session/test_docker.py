"""Sessions in containers: what the contract promises, every attack, what crashed runs left, and what is refused."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE
from session_agents import gateway, played

from grpo.core.check.session import check_session
from grpo.plugins.errors import SandboxUnavailable, SessionError, SessionLost
from grpo.plugins.host import Host
from grpo.plugins.pools import close_sessions
from grpo.plugins.session import Session, SessionJob, SessionLimits
from grpo.rewards.sandbox.container import OWNER, owner
from grpo.rewards.sandbox.docker_pool import connected
from grpo.rewards.sandbox.engine_image import made_image
from grpo.rewards.session.docker_machine import LABEL
from grpo.rewards.session.docker_pool import DockerSessions
from grpo.rewards.session.spec import docker as make

pytestmark = pytest.mark.slow
IMAGE = "grpo-session:programs"
PROGRAMS = (
    *("sh", "bash", "cat", "ls", "tar", "find", "rm", "mkdir", "chmod", "env", "base64", "readlink", "sed", "awk"),
    *("grep", "sort", "wc", "head", "tail", "cmp", "cp", "mv", "touch", "sleep", "seq", "true", "ln", "mkfifo"),
    *("setsid", "dirname", "cut", "tr", "xargs", "test", "du", "pwd", "printf", "echo", "stat"),
)


@pytest.fixture(scope="module")
def engine() -> Iterator[Any]:
    """A client of the engine at DOCKER_HOST, with an image of this machine's programs."""
    client = connected("")
    made_image(client, IMAGE, PROGRAMS)
    yield client
    close_sessions()
    client.close()


@pytest.fixture(scope="module")
def pool(engine: Any) -> Iterator[DockerSessions]:
    made = make(image=IMAGE)
    assert isinstance(made, DockerSessions)
    yield made
    made.close()


@contextlib.contextmanager
def opened(pool: DockerSessions, **job: object) -> Iterator[Session]:
    session = pool.open(SessionJob(**job))  # type: ignore[arg-type]
    try:
        yield session
    finally:
        session.close()


def ours(engine: Any, label: str = f"{OWNER}={owner()}") -> list[str]:
    """The session containers and images of this process, or of another label."""
    containers = engine.containers.list(all=True, filters={"label": [LABEL, label]}, ignore_removed=True)
    images = engine.images.list(filters={"label": [LABEL, label]})
    return [each.id for each in (*containers, *images)]


@pytest.mark.parametrize("image", ["", IMAGE])
def test_the_session_docker_does_what_it_promises_and_holds_under_every_attack(engine: Any, image: str) -> None:
    report = check_session(f"docker:image={image}" if image else "docker")
    report.require()
    assert not report.of("warning")
    assert len(report.relations) > 20


def test_a_container_has_nothing_that_it_can_do_without(engine: Any, pool: DockerSessions) -> None:
    with opened(pool, limits=SessionLimits(memory_bytes=256 * 2**20, processes=50)):
        [container] = engine.containers.list(filters={"label": f"{OWNER}={owner()}"})
        settings = container.attrs["HostConfig"]
        assert settings["NetworkMode"] == "none"
        assert settings["CapDrop"] == ["ALL"]
        assert settings["Memory"] == settings["MemorySwap"] == 256 * 2**20
        assert settings["PidsLimit"] == 51
        assert any(option.startswith("no-new-privileges") for option in settings["SecurityOpt"])
        assert not settings["Binds"]


def test_two_sessions_have_the_same_paths_and_nothing_in_common(pool: DockerSessions) -> None:
    with opened(pool, files={"a.txt": b"1"}) as one, opened(pool, files={"~/b.txt": b"2"}) as other:
        for session in (one, other):
            assert session.run(["sh", "-c", "pwd; echo ~"]).stdout == b"/workspace\n/home/agent\n"
        one.write("/tests/mine", b"x", mode=0o755)
        assert one.run(["stat", "-c", "%a", "/tests/mine"]).stdout == b"755\n"
        assert other.run(["ls", "/tests"]).code != 0
        assert other.read("~/b.txt") == b"2"


def test_what_a_command_started_lives_on_until_stop(pool: DockerSessions) -> None:
    count = ["sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c 'sleep 6[0]0'"]
    with opened(pool) as session:
        left = session.run(["sh", "-c", "sleep 600 & echo begun"], timeout=PATIENCE)
        assert (left.code, left.stdout) == (0, b"begun\n")
        assert session.run(count).stdout == b"1\n"
        session.stop()
        assert session.run(count).stdout == b"0\n"


def test_the_time_of_a_session_ends_its_programs_and_keeps_its_files(pool: DockerSessions) -> None:
    with opened(pool, limits=SessionLimits(seconds=2.0)) as session:
        left = session.run(["sh", "-c", "echo kept > a; sleep 600"])
        assert (left.timed_out, left.code) == (True, -signal.SIGKILL)
        late = session.run(["true"])
        assert (late.timed_out, late.code, late.problem) == (True, None, "the time of the session is up")
        assert session.read("a") == b"kept\n"
        with pytest.raises(SessionError, match="the time of the session is up"):
            session.start(["true"])


def test_a_program_that_cannot_start_says_why(pool: DockerSessions) -> None:
    with opened(pool, files={"data": b"x"}) as session:
        reasons = {"./data": "Permission denied", "nothing": "No such file", "": "No such file"}
        for program, why in reasons.items():
            left = session.run([program])
            assert left.code is None
            assert why in left.problem
        assert session.run([]).problem == "no program is named"
        assert "no such file or directory" in session.run(["true"], directory="/nothing").problem
        with pytest.raises(SessionError, match="No such file"):
            session.start(["nothing"])


def test_a_large_request_and_a_large_output_arrive_whole(pool: DockerSessions) -> None:
    text = "é" * 60_000
    with opened(pool) as session:
        left = session.run(["sh", "-c", f"printf %s '{text}'; cat"], stdin=b"\0" * 500_000)
        assert left.stdout == text.encode() + b"\0" * 500_000
        assert left.omitted == 0


def test_a_program_over_the_memory_of_its_session_says_so(pool: DockerSessions) -> None:
    with opened(pool, limits=SessionLimits(memory_bytes=64 * 2**20)) as session:
        left = session.run(["python3", "-c", "x = bytearray(b'x') * 2**28"], timeout=PATIENCE)
        assert (left.code, left.out_of_memory) == (-signal.SIGKILL, True)
        left = session.run(["false"])
        assert not left.out_of_memory


def test_a_killed_program_ends_though_nobody_reads_what_it_writes(pool: DockerSessions) -> None:
    with opened(pool) as session:
        process = session.start(["cat", "/dev/zero"])
        assert process.stdout.read(1) == b"\0"
        process.kill()
        assert process.wait(PATIENCE) == -signal.SIGKILL
        process.close()


def test_the_image_of_a_snapshot_goes_with_the_last_session_that_runs_from_it(
    engine: Any, pool: DockerSessions
) -> None:
    session = pool.open(SessionJob())
    copy = session.fork(session.snapshot())
    session.close()
    assert copy.run(["true"]).code == 0
    copy.close()
    assert not ours(engine)


def test_a_session_that_is_closed_or_killed_is_lost_and_no_result(engine: Any, pool: DockerSessions) -> None:
    session = pool.open(SessionJob())
    session.close()
    with pytest.raises(SessionLost, match="closed"):
        session.run(["true"])
    with opened(pool) as killed:
        started = killed.start(["sleep", "600"])
        [container] = engine.containers.list(filters={"label": f"{OWNER}={owner()}"})
        container.remove(force=True)
        with pytest.raises(SessionLost):
            started.wait(PATIENCE)
        for lost in (lambda: killed.read("x"), lambda: killed.run(["true"]), killed.stop, killed.tar):
            with pytest.raises(SessionLost):
                lost()
        started.close()


def test_what_a_crashed_run_left_is_reaped(engine: Any, pool: DockerSessions) -> None:
    program = (
        "import os, signal\nfrom grpo.plugins.session import SessionJob\n"
        f"from grpo.rewards.session.spec import docker\npool = docker(image='{IMAGE}')\n"
        "session = pool.open(SessionJob(reach={80: '127.0.0.1:80'}))\n"
        "image, relay = session._snapshots[session.snapshot()], session._ports\n"
        "print(session.container, image, relay._container.id, relay._folder, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    with opened(pool):
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        assert done.returncode == -signal.SIGKILL, done.stderr
        left = done.stdout.split()
        assert len(left) == 4
        end = time.monotonic() + PATIENCE
        while {*left} & {each.id for each in engine.containers.list(ignore_removed=True)}:
            assert time.monotonic() < end, "programs outlive their owner"
            time.sleep(0.1)
        DockerSessions.reap()
        assert not {*left} & {*ours(engine, LABEL)}
        assert not Path(left[3]).exists()
        assert ours(engine), "a container of a living process stays"


def test_what_a_session_in_a_container_cannot_give_is_refused(
    engine: Any, pool: DockerSessions, tmp_path: Path
) -> None:
    (tmp_path / "Dockerfile").write_text("FROM no-such:image\n")
    for job, problem in (
        (SessionJob("no-such:image"), "docker pull no-such:image"),
        (SessionJob("/no/such/folder"), "there is no /no/such/folder/Dockerfile"),
        (SessionJob(str(tmp_path)), f"{tmp_path}/Dockerfile cannot be built"),
        (SessionJob(files={"../out": b""}), "cannot be the path"),
        (SessionJob(shared=["/no/such/path"]), "cannot be shared"),
    ):
        with pytest.raises(SessionError, match=problem):
            pool.open(job)
    with pytest.raises(SandboxUnavailable, match="docker pull no-such:image"):
        make(image="no-such:image")
    engine.api.import_image_from_data(b"\0" * 1024, repository="grpo-session", tag="empty")
    with pytest.raises(SandboxUnavailable, match="gives no session of 'grpo-session:empty'"):
        make(image="grpo-session:empty")
    with pytest.raises(SandboxUnavailable, match="no container engine answers"):
        make(image=IMAGE, host="unix:///nowhere/socket")


def test_an_image_keeps_its_working_directory_and_its_files_are_the_programs(
    engine: Any, pool: DockerSessions, tmp_path: Path
) -> None:
    lines = (f"FROM {IMAGE} AS first", "RUN mkdir /made && echo 1 > /made/it", f"FROM {IMAGE}")
    (tmp_path / "Dockerfile").write_text("\n".join((*lines, "COPY --from=first /made /app", "WORKDIR /app\n")))
    with opened(pool, image=str(tmp_path), files={"a": b"2"}) as session:
        left = session.run(["sh", "-c", "pwd; echo 3 >> it; cat it a"])
        assert (left.stdout, left.stderr) == (b"/app\n1\n3\n2", b"")


def test_a_session_without_an_image_shows_this_machines_programs_and_none_of_its_files(engine: Any) -> None:
    made = make()
    assert isinstance(made, DockerSessions)
    with contextlib.closing(made), opened(made) as session:
        assert session.run([sys.executable, "-c", "1"]).code is None, (
            "what is not below the system folders is not there"
        )
        assert session.run(["sh", "-c", "id -u; touch /new && rm /new && echo so"]).stdout == b"65534\nso\n"
        assert session.run(["touch", "/usr/new"]).code != 0


def test_programs_that_spoil_their_image_are_no_trouble_of_the_session(pool: DockerSessions) -> None:
    with opened(pool) as session:
        session.run(["sh", "-c", "cd /usr/bin; echo '#!/bin/sh' > x; chmod 755 x; cp x cat; mv x sh"], timeout=PATIENCE)
        for _ in range(2):
            session.stop()
            assert session.run(["true"], timeout=PATIENCE).code is None
            with pytest.raises(SessionError):
                session.read("x")


def test_a_shared_path_is_read_only_and_at_its_own_place(pool: DockerSessions, tmp_path: Path) -> None:
    (tmp_path / "tool").write_text("x", encoding="utf-8")
    with opened(pool, shared=[str(tmp_path)]) as session:
        left = session.run(["sh", "-c", f"cat {tmp_path}/tool; echo y > {tmp_path}/tool"])
        assert left.stdout == b"x"
        assert b"Read-only" in left.stderr
    assert (tmp_path / "tool").read_text(encoding="utf-8") == "x"


def test_what_is_hidden_is_not_seen_and_what_is_shared_in_it_is(pool: DockerSessions, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    for name in ("tasks/gold", "tasks/agent.py", "module.py", "one.jsonl"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(name, encoding="utf-8")
    whole = str(tmp_path)
    hidden = [f"{whole}/tasks", f"{whole}/one.jsonl"]
    with opened(pool, shared=[whole, f"{whole}/tasks/agent.py"], hidden=hidden) as session:
        left = session.run(["sh", "-c", f"find {whole} -name gold; cat {whole}/* {whole}/tasks/agent.py"])
    assert left.stdout == b"module.pytasks/agent.py"


def test_one_address_outside_is_reached_also_after_a_stop_and_nothing_of_it_is_left(pool: DockerSessions) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gateway:
        gateway.settimeout(PATIENCE)
        with opened(pool, reach={8765: f"127.0.0.1:{gateway.getsockname()[1]}"}) as session:
            [folder] = (path.parent for path in Path("/tmp").glob("grpo-ports-*/8765"))
            for _ in range(2):
                ask = "import socket; s = socket.create_connection(('127.0.0.1', 8765)); print(s.recv(9))"
                process = session.start(["python3", "-c", ask])
                caller, _ = gateway.accept()
                with caller:
                    caller.sendall(b"policy")
                assert process.stdout.read(9) == b"b'policy'"
                process.close()
                session.stop()
    assert not folder.exists()


def test_more_files_than_a_session_may_have_end_what_writes_them(pool: DockerSessions) -> None:
    write = "n=0; while :; do : > $((n % 5000)); n=$((n+1)); done"
    with opened(pool, limits=SessionLimits(disk_bytes=2**20)) as session:
        left = session.run(["sh", "-c", write], timeout=PATIENCE)
        assert (left.code, left.timed_out) == (-signal.SIGKILL, False)


def test_files_over_the_limit_of_the_disk_end_what_writes_them(pool: DockerSessions) -> None:
    with opened(pool, limits=SessionLimits(disk_bytes=2**20)) as session:
        left = session.run(["sh", "-c", "head -c 2M /dev/zero > big; wc -c < big"])
        assert left.stdout == b"1048576\n"
        many = "n=0; while :; do head -c 500000 /dev/zero > $n; n=$((n + 1)); done"
        assert session.run(["sh", "-c", many], timeout=PATIENCE).code == -signal.SIGKILL


def tasks_in(folder: Path) -> Path:
    row = {
        "instruction": "Write the sum of numbers.txt into sum.txt.",
        "files": {"numbers.txt": "1\n41\n"},
        "grader": 'test "$(cat sum.txt)" = 42\n',
        "solution": "awk '{n += $1} END {print n}' numbers.txt > sum.txt\n",
    }
    file = folder / "tasks.jsonl"
    file.write_text("".join(json.dumps({**row, "name": f"sum {n}"}) + "\n" for n in range(2)))
    return file


def graded(spec: str, *commands: str) -> float:
    """Plays one episode of the first task with commands, and returns its reward."""
    bound = Host.discover().env(spec)
    env: Any = bound.make()
    env.reset(options={"row": (bound.rows("train") or [])[0]})
    try:
        for command in commands:
            env.bash(command)
        return float(env.step("Done.")[1])
    finally:
        env.close()


def test_tasks_of_a_shell_are_solved_and_graded_in_containers(engine: Any, tmp_path: Path) -> None:
    spec = f"shell:{tasks_in(tmp_path)}:session=docker,image={IMAGE}"
    assert graded(spec, "echo 42 > sum.txt") == 1.0
    assert graded(spec, "echo 41 > sum.txt; (sleep 600 &)") == 0.0
    assert not ours(engine)


@pytest.mark.parametrize("mode", ["separate", "shared"])
def test_a_task_of_harbor_begins_with_the_image_of_its_dockerfile(engine: Any, tmp_path: Path, mode: str) -> None:
    lines = [f"FROM {IMAGE} AS words", "RUN echo hello > /word.txt", f"FROM {IMAGE}", "WORKDIR /app"]
    lines += ("COPY --from=words /word.txt .", "COPY more.txt .", "RUN mkdir made; echo made > made/it.txt")
    for name, text in {
        "task.toml": f'[verifier]\nenvironment_mode = "{mode}"\n',
        "instruction.md": "Write hello into made/out.txt.",
        "environment/Dockerfile": "\n".join(lines),
        "environment/more.txt": "more\n",
        "tests/test.sh": "cmp made/out.txt word.txt && test -f more.txt && echo 1 > /logs/verifier/reward.txt\n",
        "solution/solve.sh": "cp word.txt made/out.txt\n",
    }.items():
        (tmp_path / "tasks" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tasks" / name).write_text(text)
    spec = f"harbor:{tmp_path / 'tasks'}:session=docker"
    assert graded(spec, "cp word.txt made/out.txt") == 1.0
    assert graded(spec, "echo 1 > /logs/verifier/reward.txt") == 0.0
    assert graded(spec, "rm -rf /app; ln -s / /app; mkdir /made; echo hello > /made/out.txt") == 0.0


def test_an_agent_in_a_container_reaches_the_policy_and_is_graded(engine: Any, tmp_path: Path) -> None:
    agent = tmp_path / "agent.py"
    agent.write_text(
        "import os, pathlib, urllib.request\n\n\ndef run(task, access):\n"
        "    said = urllib.request.urlopen(os.environ['OPENAI_BASE_URL']).read().decode()\n"
        "    pathlib.Path('sum.txt').write_text('42')\n    return f'{said} {os.getcwd()} {access.key}'\n"
    )
    for each in (tmp_path, agent):
        each.chmod(0o755)
    with gateway() as access:
        left = played(f"python:{agent}:run", access, tmp_path, "test $(cat sum.txt) = 42", session="docker")
    assert (left.answer, left.stderr) == ("policy /workspace the-key", "")
    assert left.graded is not None
    assert left.graded.reward == 1.0
    assert not ours(engine)
