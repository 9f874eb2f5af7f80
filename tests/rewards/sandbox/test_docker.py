"""The sandbox `docker`: hardened containers, crashes and restarts of the engine, and every attack."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from grpo.core.check.sandbox import check_sandbox
from grpo.plugins.errors import SandboxUnavailable
from grpo.plugins.host import Host
from grpo.plugins.sandbox_job import Job, JobResult, Limits
from grpo.rewards.sandbox.container import LABEL, OWNER, owner
from grpo.rewards.sandbox.docker_pool import DockerPool, connected
from grpo.rewards.sandbox.engine_image import made_image
from grpo.rewards.sandbox.spec import docker as make

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def engine() -> Iterator[Any]:
    """A client of the engine at DOCKER_HOST, with the test image."""
    client = connected("")
    made_image(client)
    yield client
    client.close()


@pytest.fixture(scope="module")
def pool(engine: Any) -> Iterator[DockerPool]:
    made = make(image=made_image(engine), slots=2)
    assert isinstance(made, DockerPool)
    yield made
    made.close()


def run(pool: DockerPool, *jobs: Job) -> list[JobResult]:
    return asyncio.run(pool.run(jobs))


def ours(engine: Any, label: str = f"{OWNER}={owner()}") -> list[Any]:
    """The containers of this process, or of another label; tests of other processes may share the engine."""
    return list(engine.containers.list(all=True, filters={"label": label}, ignore_removed=True))


def test_programs_run_in_a_warm_container(engine: Any, pool: DockerPool) -> None:
    results = run(pool, *(Job("print(input())", stdin=b"%d\n" % number) for number in range(20)))
    assert [result.stdout for result in results] == [b"%d\n" % number for number in range(20)]
    assert len(ours(engine)) == 1


def test_the_container_has_nothing_that_it_can_do_without(engine: Any, pool: DockerPool) -> None:
    [container] = ours(engine)
    settings = container.attrs["HostConfig"]
    assert settings["NetworkMode"] == "none"
    assert settings["CapDrop"] == ["ALL"]
    assert settings["ReadonlyRootfs"]
    assert not settings["Privileged"]
    assert settings["LogConfig"]["Type"] == "none"
    assert any(option.startswith("no-new-privileges") for option in settings["SecurityOpt"])
    assert container.attrs["Config"]["User"] == "65534:65534"
    assert not settings["Binds"]
    assert settings["Memory"] == settings["MemorySwap"] == 4096 * 2**20


def test_the_sandbox_docker_holds_under_every_attack(engine: Any) -> None:
    report = check_sandbox(Host.discover().sandbox(f"docker:image={made_image(engine)},slots=4"))
    report.require()
    assert not report.of("warning")
    assert len(report.relations) > 100


def test_a_container_that_ends_costs_a_retry(engine: Any) -> None:
    mine = make(image=made_image(engine), slots=2)
    assert isinstance(mine, DockerPool)
    try:
        [before] = [one for one in ours(engine) if one.id == mine._container._container.id]

        async def end_it_meanwhile() -> list[JobResult]:
            running = asyncio.create_task(mine.run([Job("import time; time.sleep(1); print('done')")]))
            await asyncio.sleep(0.3)
            await asyncio.to_thread(before.kill)
            return await running

        [result] = asyncio.run(end_it_meanwhile())
        assert (result.outcome, result.stdout) == ("exited", b"done\n")
    finally:
        mine.close()
    assert before.id not in [one.id for one in ours(engine)]


def test_what_a_crashed_run_left_is_reaped(engine: Any, pool: DockerPool) -> None:
    program = (
        "import os, signal\nfrom grpo.rewards.sandbox.spec import docker\n"
        f"pool = docker(image='{made_image(engine)}', slots=2)\nprint(pool._container._container.id, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL
    assert DockerPool.reap() <= 1  # the agent's input has ended, so that it may be on its way out already
    left = [one.id for one in ours(engine, LABEL)]
    assert done.stdout.strip() not in left
    assert pool._container._container.id in left, "a container of a living process stays"


@pytest.fixture
def own_engine() -> Iterator[tuple[str, Callable[[], None], Callable[[], None]]]:
    """An engine that a test may restart: its address, what starts it and what kills it."""
    if os.geteuid() != 0 or not shutil.which("dockerd"):
        pytest.skip("starting an engine needs root and dockerd; on Debian and Ubuntu: apt install docker.io")
    # The path of a socket has room for a hundred characters, and pytest's own folders are long.
    folder = tempfile.mkdtemp(prefix="engine-")
    host, running = f"unix://{folder}/s", []
    command = ["dockerd", "--data-root", f"{folder}/data", "--exec-root", f"{folder}/exec"]
    command += ["--pidfile", f"{folder}/pid", "-H", host, "--bridge", "none", "--iptables=false"]
    command += ["--ip6tables=false", "--storage-driver", "vfs"]

    def start() -> None:
        with Path(folder, "log").open("ab") as log:
            running.append(subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True))
        for _ in range(600):
            try:
                client = connected(host)
            except SandboxUnavailable:
                time.sleep(0.1)
            else:
                client.close()
                return
        pytest.fail(Path(folder, "log").read_text()[-2000:])

    def end() -> None:
        process = running.pop()
        process.terminate()
        process.wait(60)

    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        stack.callback(lambda: end() if running else None)
        start()
        yield host, start, end


@pytest.mark.nightly
def test_an_engine_that_restarts_costs_a_retry_and_one_that_stays_away_makes_jobs_unavailable(
    own_engine: tuple[str, Callable[[], None], Callable[[], None]], engine: Any
) -> None:
    host, start, end = own_engine
    client = connected(host)
    image = made_image(client)
    client.close()
    mine = make(image=image, slots=2, host=host, patience=20.0)
    assert isinstance(mine, DockerPool)
    try:

        async def restart_meanwhile() -> list[JobResult]:
            running = asyncio.create_task(mine.run([Job("import time; time.sleep(2); print('done')")] * 2))
            await asyncio.sleep(0.3)
            await asyncio.to_thread(end)
            await asyncio.to_thread(start)
            return await running

        assert [result.stdout for result in asyncio.run(restart_meanwhile())] == [b"done\n"] * 2
        mine._patience = 0.5
        end()
        [result] = run(mine, Job("print(1)"))
        assert result.outcome == "unavailable"
        assert "no container engine answers" in result.reason
        start()
        assert run(mine, Job("print(1)"))[0].stdout == b"1\n"
    finally:
        mine.close()


def test_without_an_engine_or_an_image_it_says_what_to_do(engine: Any) -> None:
    with pytest.raises(SandboxUnavailable, match=r"no container engine answers at unix:///none"):
        make(host="unix:///none")
    with pytest.raises(SandboxUnavailable, match=r"no image 'grpo-none:1'\. Get it with: docker pull grpo-none:1"):
        make(image="grpo-none:1")
    with pytest.raises(SandboxUnavailable, match="runtime"):
        make(image=made_image(engine), runtime="no-such-runtime")


def test_limits_hold_in_a_container_too(pool: DockerPool) -> None:
    loop, greedy = Job("while True: pass", limits=Limits(cpu_seconds=0.2)), Job("x = bytearray(2**34)")
    assert [result.outcome for result in run(pool, loop, greedy)] == ["time_cpu", "memory"]
