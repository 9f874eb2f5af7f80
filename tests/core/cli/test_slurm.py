"""Runs on a real SLURM cluster, of two nodes that are both this machine."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from patience import RUN, wait_for

DAEMONS = ("munged", "slurmctld", "slurmd", "sbatch")


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A SLURM cluster of two nodes that are both this machine; yields the folder with its configuration."""
    missing = [name for name in DAEMONS if shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin") is None]
    if missing or os.geteuid():
        lacks = f"a SLURM cluster needs {', '.join(missing) or 'root'} (apt-get install slurm-wlm munge)"
        if os.environ.get("GRPO_REQUIRE_SLURM"):
            pytest.fail(lacks)
        pytest.skip(lacks)
    folder = tmp_path_factory.mktemp("slurm")
    folder.chmod(0o755)
    for above in folder.parents[:2]:  # munged trusts its socket only where others can look in
        above.chmod(0o755)
    host, (control, *nodes) = socket.gethostname().partition(".")[0], free_ports(3)
    (folder / "slurm.conf").write_text(
        "\n".join(
            [
                "ClusterName=here",
                f"FirstJobId={random.randrange(1, 1000)}",  # which decides the ports of a run
                f"SlurmctldHost={host}(127.0.0.1)",
                f"SlurmctldPort={control}",
                "AuthType=auth/munge",
                f"AuthInfo=socket={folder}/munge.socket",
                "SlurmUser=root",
                "SlurmdUser=root",
                f"StateSaveLocation={folder}/state",
                f"SlurmdSpoolDir={folder}/spool-%n",
                f"SlurmctldPidFile={folder}/slurmctld.pid",
                f"SlurmdPidFile={folder}/slurmd-%n.pid",
                f"SlurmctldLogFile={folder}/slurmctld.log",
                f"SlurmdLogFile={folder}/slurmd-%n.log",
                "ProctrackType=proctrack/linuxproc",
                "TaskPlugin=task/none",
                "MpiDefault=none",
                "ReturnToService=2",
                *(
                    f"NodeName=node{number} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=2"
                    for number, port in enumerate(nodes)
                ),
                "PartitionName=all Nodes=ALL Default=YES State=UP",
                "",
            ]
        )
    )
    (folder / "state").mkdir()
    key = folder / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    environment = {**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin", "SLURM_CONF": str(folder / "slurm.conf")}
    files = {name: f"{folder}/munge.{name}" for name in ("socket", "pid", "log", "seed")}
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for command in (
            ["munged", "--foreground", "--force", f"--key-file={key}"]
            + [f"--{name}{'' if name == 'socket' else '-file'}={path}" for name, path in files.items()],
            ["slurmctld", "-D"],
            *(["slurmd", "-D", "-N", f"node{number}"] for number in range(len(nodes))),
        ):
            with (folder / f"{len(processes)}.err").open("w") as errors:
                processes.append(
                    subprocess.Popen(
                        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors
                    )
                )
            time.sleep(1)
        idle = ["sinfo", "-h", "-t", "idle", "-o", "%D"]
        started = wait_for(
            lambda: subprocess.run(idle, env=environment, capture_output=True).stdout.strip() == b"2", RUN
        )
        assert started, "".join(file.read_text() for file in folder.glob("*.err"))
        yield folder
    finally:
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            process.wait(RUN)


def submit(cluster: Path, script: Path, output: Path) -> str:
    return slurm(cluster, "sbatch", "--parsable", "-o", str(output), str(script)).strip()


def slurm(cluster: Path, *command: str) -> str:
    environment = {**os.environ, "SLURM_CONF": str(cluster / "slurm.conf")}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


def ended(cluster: Path, job: str, within: float) -> str:
    """Waits until a job is over; returns its state."""
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        state = re.search(r"JobState=(\w+)", slurm(cluster, "scontrol", "show", "job", job))
        assert state is not None
        if state[1] not in ("PENDING", "RUNNING", "COMPLETING"):
            return state[1]
        time.sleep(0.5)
    raise AssertionError(f"job {job} did not end within {within} s")


@pytest.mark.slow
def test_a_run_on_two_nodes_stops_at_a_warning_and_goes_on_when_it_is_submitted_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cluster: Path
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    run, script, output = tmp_path / "run", tmp_path / "job.sh", tmp_path / "job.out"
    job = ["--env", "gsm8k", "--reward", "proximity", "--steps", "20", "--eval-size", "0", "--out", str(run)]
    words = ["launch", "--slurm", "--nodes", "2", "--gpus-per-node", "0", "-o", str(script), "--", *job]
    subprocess.run([sys.executable, "-m", "grpo", *words], check=True)
    first = submit(cluster, script, output)
    arrived = wait_for(lambda: output.is_file() and "step 2 " in output.read_text(), RUN)
    assert arrived, output.read_text() if output.is_file() else "nothing was printed"
    slurm(cluster, "scancel", "--signal=TERM", first)  # as SLURM does before the end of the job's time
    ended(cluster, first, 120)
    state = json.loads((run / "state.json").read_text()) if (run / "state.json").is_file() else {}
    assert state.get("status") == "interrupted", output.read_text()
    resumed = submit(cluster, script, output)
    assert ended(cluster, resumed, 300) == "COMPLETED", output.read_text()
    shown = output.read_text()
    assert f"resuming after step {state['step']}" in shown
    assert "done after step 20" in shown
    assert (run / "model" / "model.safetensors").is_file()
