"""The session does what every session does, on a stand-in for a cloud; no real cloud was reached."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from grpo_session_cloud import cloud

from grpo import (
    Host,
    SandboxUnavailable,
    SessionError,
    SessionJob,
    SessionLost,
    SessionPool,
    check_session,
    sessions_of,
)

PYTHON = os.environ.get("GRPO_HARBOR_PYTHON", "")
needs_harbor = pytest.mark.skipif(
    not PYTHON or os.geteuid() != 0, reason="set GRPO_HARBOR_PYTHON to a Python with harbor, and be root"
)
CLOUD: dict[str, Any] = {"provider": f"{Path(__file__).with_name('local_cloud.py')}:LocalCloud", "python": PYTHON}


@pytest.fixture
def machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a file for each machine of the stand-in."""
    monkeypatch.setenv("LOCAL_CLOUD", str(tmp_path))
    yield tmp_path
    assert not [*tmp_path.iterdir()], "machines are left"


@pytest.fixture
def pool(machines: Path) -> Iterator[SessionPool]:
    pool = cloud(**CLOUD)
    yield pool
    pool.close()


@needs_harbor
def test_it_keeps_what_a_session_promises(machines: Path) -> None:
    report = check_session(f"cloud:provider={CLOUD['provider']},python={PYTHON}", attacks=[])
    assert report.ok, str(report)


@needs_harbor
def test_a_task_in_a_shell_is_played_and_graded(machines: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    tasks = tmp_path_factory.mktemp("tasks") / "tasks.jsonl"
    row = {"instruction": "Copy a.txt.", "files": {"a.txt": "42\n"}, "grader": '[ "$(cat b.txt)" = 42 ]'}
    tasks.write_text(f"{json.dumps({**row, 'solution': 'cp a.txt b.txt'})}\n" * 2)
    session = f"cloud:provider={CLOUD['provider']},python={PYTHON}"
    env: Any = Host.discover().env({"name": f"shell:{tasks}", "options": {"session": session}}).make()
    for command, paid in (("cp a.txt b.txt", 1.0), ("true", 0.0)):
        env.reset(options={"row": json.loads(tasks.read_text().splitlines()[0])})
        [bash] = env.unwrapped.tools
        bash(command)
        assert env.step("Done.")[1] == paid
    env.close()
    sessions_of(session).close()


@needs_harbor
def test_a_large_output_and_a_large_file_come_whole(pool: SessionPool) -> None:
    session = pool.open(SessionJob())
    assert len(session.run(["head", "-c", "300000", "/dev/zero"]).stdout) == 300_000
    session.write("big", bytes(range(256)) * 2000)
    assert session.read("big") == bytes(range(256)) * 2000
    session.close()


@needs_harbor
def test_programs_cannot_change_what_runs_them(pool: SessionPool) -> None:
    session = pool.open(SessionJob())
    left = session.run(["sh", "-c", "id -u; echo echo hacked > /opt/grpo/guest.sh; ls /opt/grpo/*"])
    assert left.stdout.splitlines()[0] == b"61000"
    assert session.run(["echo", "on"]).stdout == b"on\n"
    session.close()


@needs_harbor
def test_what_cannot_be_is_refused(pool: SessionPool) -> None:
    for job in (SessionJob(reach={80: "127.0.0.1:1"}), SessionJob(shared=["/usr"])):
        with pytest.raises(SessionError, match="agents cannot run inside it"):
            pool.open(job)


@needs_harbor
def test_a_machine_that_is_gone_is_no_score(pool: SessionPool, machines: Path) -> None:
    session = pool.open(SessionJob())
    [machine] = machines.iterdir()
    os.kill(int(machine.name), signal.SIGKILL)
    with pytest.raises(SessionLost):
        session.run(["true"])
    session.close()


@needs_harbor
def test_a_cloud_without_a_free_machine_is_no_score(machines: Path) -> None:
    pool = cloud(**CLOUD, options={"fails": "start"})
    with pytest.raises(SessionLost, match="no machine is free"):
        pool.open(SessionJob())
    pool.close()


@needs_harbor
def test_a_provider_that_is_not_known_is_named(machines: Path) -> None:
    pool = cloud(provider="nimbus", python=PYTHON)
    with pytest.raises(SessionError, match="'nimbus' is not a valid EnvironmentType"):
        pool.open(SessionJob())
    pool.close()


@needs_harbor
def test_an_owner_that_is_killed_leaves_no_machine(machines: Path) -> None:
    program = (
        "from grpo_session_cloud import cloud\nfrom grpo import SessionJob\nimport sys\n"
        f"pool = cloud(**{CLOUD!r})\npool.open(SessionJob())\nprint('open', flush=True)\nsys.stdin.read()\n"
    )
    pipe = subprocess.PIPE
    path = os.pathsep.join(filter(None, sys.path))
    owner = subprocess.Popen(
        [sys.executable, "-c", program], stdin=pipe, stdout=pipe, env={**os.environ, "PYTHONPATH": path}
    )
    assert owner.stdout is not None
    assert owner.stdout.readline() == b"open\n"
    owner.kill()
    owner.communicate()
    # The worker removes what is left.
    wait = f'for _ in $(seq 600); do [ -z "$(ls {machines})" ] && exit 0; sleep 0.1; done; exit 1'
    assert subprocess.run(["sh", "-c", wait], check=False).returncode == 0


def test_a_python_without_harbor_says_what_to_do() -> None:
    for python in ("no-such-python", sys.executable):
        with pytest.raises(SandboxUnavailable, match="harbor/bin/pip install harbor"):
            cloud(python=python)


def test_grpo_finds_it() -> None:
    assert Host.discover().session("grpo-session-cloud/cloud").spec is cloud
