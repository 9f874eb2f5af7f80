"""Two training processes with the real vLLM: an engine for each, a server for each, or one for both; one same run.

The run has rollouts of one turn and of several in each batch, is evaluated, and is sampled one batch ahead or not.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import sharded_command
from disturbed_ranks import REWARD, Ranks
from engine_bench import REAL_VLLM
from forked_command import in_two_processes
from patience import RUN
from rollout_server import Server
from same_metrics import metrics_of

pytestmark = REAL_VLLM

STEPS = 4


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("settings")
    (folder / "mine.py").write_text(REWARD)
    file = folder / "run.toml"
    file.write_text(
        f"""
env = ["gsm8k:weight=0.5", "guess:weight=0.5"]
rewards = ["{folder}/mine.py:vowels"]
train = {{ steps = {STEPS}, lr = 1e-2, prompts_per_step = 4, group_size = 4 }}
lora = {{ enabled = true }}
evaluation = {{ size = 10 }}
output = {{ save_every = 2 }}

[rollout]
ahead = 1
lora_sync = "adapter"
max_completion_length = 24
max_turns = 3
max_rollout_length = 300
server_wait = {RUN}
"""
    )
    return file


def train(settings: Path, out: Path, *more: str, code: int = 0) -> str:
    done = in_two_processes(["run", "--config", str(settings), "--out", str(out), *more], code)
    return done.stdout + done.stderr


def on(*servers: Server) -> Sequence[str]:
    return "--rollout", "vllm-server", "--server-url", ",".join(server.url for server in servers)


def learned(run: Path) -> list[dict[str, Any]]:
    """The metrics without seconds, and without what syncs say of themselves."""
    return [{k: v for k, v in row.items() if not k.startswith(("time/", "sync/"))} for row in metrics_of(run)]


@pytest.fixture(scope="module")
def with_engines(settings: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with an engine in each process."""
    out = tmp_path_factory.mktemp("engines") / "run"
    train(settings, out, "--rollout", "vllm")
    return out


def test_each_process_samples_its_share_with_a_proven_engine_of_its_own(with_engines: Path) -> None:
    rows = metrics_of(with_engines)[1:]  # the first one is of the evaluation before training
    assert [row["sampling/staleness"] for row in rows] == [0.0] + [1.0] * (STEPS - 1)
    assert max(row["sampling/sampling_logp_difference/max"] for row in rows) < 1e-3
    assert max(row["env/guess/turns"] for row in rows) > 1.0
    assert all(row["env/gsm8k/share"] == 0.5 for row in rows)
    assert not any(name in row for row in rows for name in ("sync/repeated", "sync/batches_again", "sync/steps_again"))
    assert sum("held_out/accuracy" in row for row in metrics_of(with_engines)) == 2
    assert (with_engines / "model" / "adapter_model.safetensors").is_file()


@pytest.mark.nightly
def test_servers_sample_the_same_run_and_one_that_is_killed_costs_nothing_but_time(
    with_engines: Path, settings: Path, servers: list[Server], tmp_path: Path
) -> None:
    """The server of the second process, so that the first one has to go along with what it did not see."""
    out, limit = tmp_path / "run", time.monotonic() + RUN

    def kill() -> None:
        while not ((out / "metrics.jsonl").exists() and len(metrics_of(out)) > 2):
            if time.monotonic() > limit:
                return
            time.sleep(0.05)
        servers[1].kill()
        servers[1].start()

    killing = threading.Thread(target=kill)
    killing.start()
    said = train(settings, out, *on(*servers))
    killing.join()
    assert learned(out) == learned(with_engines)
    assert "does not answer" in said, "the second process tells of its server"
    assert "is back" in said
    handed = [row["sync/bytes"] for row in metrics_of(out)[2:] if "sync/bytes" in row]
    assert max(handed) > 2 * min(handed), "the base came along again"


@pytest.mark.nightly
def test_two_processes_share_one_server_and_a_resumed_run_goes_on(
    with_engines: Path, settings: Path, servers: list[Server], tmp_path: Path
) -> None:
    out = tmp_path / "run"
    train(settings, out, *on(servers[0]))
    assert learned(out) == learned(with_engines)
    # As kill -9 leaves it after the checkpoint of step 2.
    assert (out / "checkpoints" / "checkpoint-2" / "ahead-1.json").is_file()
    shutil.rmtree(out / "model")
    shutil.rmtree(out / "checkpoints" / "checkpoint-4")
    in_two_processes(["run", "--resume", str(out)])
    assert learned(out) == learned(with_engines)


@pytest.mark.nightly
def test_a_server_that_stays_away_ends_both_processes_with_one_line(
    settings: Path, servers: list[Server], tmp_path: Path
) -> None:
    """All weights are trained, and nothing is sampled ahead of time."""
    out = tmp_path / "run"
    plain = ["--set", "lora.enabled=false", "--set", "rollout.ahead=0", "--set", "rollout.server_wait=2"]

    def kill() -> None:
        limit = time.monotonic() + RUN
        while not ((out / "metrics.jsonl").exists() and len(metrics_of(out)) > 1) and time.monotonic() < limit:
            time.sleep(0.05)
        servers[1].kill()

    killing = threading.Thread(target=kill)
    killing.start()
    try:
        said = train(settings, out, *on(*servers), *plain, code=1)
    finally:
        killing.join()
        servers[1].start()
        servers[1].wait()
    assert said.count("and did not come back within 2 s") == 1, said
    assert not (out / "model").exists()


def disturbed_at_random(
    command: Sequence[str], out: Path, ranks: list[Ranks], servers: list[Server], victims: Sequence[str], draw: Any
) -> None:
    """Kills what it is told to at random moments of a run: servers are started again, and a run is resumed on them."""
    run = Ranks(command, out)
    ranks.append(run)
    loading: set[Server] = set()

    def served() -> None:
        while loading:
            loading.pop().wait()

    for victim in victims:
        reach(run, draw.randrange(STEPS))
        time.sleep(draw.uniform(0.0, 2.0))
        if victim == "server":
            begin(run)
            server = draw.choice(servers)
            server.kill()
            server.start()
            loading.add(server)
        elif victim == "worker" and (workers := run.workers()):
            os.kill(draw.choice(workers), signal.SIGKILL)
        elif victim == "rank" and (processes := list(run.processes().values())):
            os.kill(draw.choice(processes), signal.SIGKILL)
            run.ended_within(RUN)
            if (out / "model").exists():  # it was done
                break
            served()
            run = Ranks(["run", "--resume", str(out)] if (out / "config.json").exists() else command, out)
            ranks.append(run)
    run.launcher.wait(RUN)
    served()
    assert (out / "model").exists(), run.said


def begin(run: Ranks) -> None:
    """Waits until a run, also a resumed one, has sampled or is over: it starts only where its servers answer."""
    while run.launcher.poll() is None and not re.search(r"^(held-out accuracy|step \d)", run.said, re.MULTILINE):
        time.sleep(0.1)


def reach(run: Ranks, step: int) -> None:
    """Waits until a run has done a step, or is over."""
    while run.launcher.poll() is None:
        if (run.out / "metrics.jsonl").exists() and any(row["step"] >= step for row in metrics_of(run.out)):
            return
        time.sleep(0.02)


@pytest.mark.nightly
def test_a_killed_server_and_a_killed_process_change_no_number(
    with_engines: Path, settings: Path, servers: list[Server], tmp_path: Path, ranks: list[Ranks]
) -> None:
    command = ["run", "--config", str(settings), "--out", str(tmp_path / "run"), *on(*servers)]
    disturbed_at_random(command, tmp_path / "run", ranks, servers, ["server", "rank"], random.Random(1))
    assert learned(tmp_path / "run") == learned(with_engines)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(8))
def test_many_kills_at_random_moments_change_no_number(
    seed: int, with_engines: Path, settings: Path, servers: list[Server], tmp_path: Path, ranks: list[Ranks]
) -> None:
    draw = random.Random(seed)
    command = ["run", "--config", str(settings), "--out", str(tmp_path / "run"), *on(*servers)]
    victims = draw.choices(["server", "worker", "rank"], k=4)
    disturbed_at_random(command, tmp_path / "run", ranks, servers, victims, draw)
    assert learned(tmp_path / "run") == learned(with_engines)


@pytest.mark.nightly
@pytest.mark.deepspeed
def test_a_run_of_deepspeed_goes_on_with_the_batches_that_were_ready(settings: Path, tmp_path: Path) -> None:
    run, sharding = tmp_path / "run", sharded_command.zero(2, tmp_path)
    sharded_command.run(["run", "--config", str(settings), "--out", str(run), "--rollout", "vllm"], sharding)
    whole = learned(run)
    assert [row["sampling/staleness"] for row in whole[1:]] == [0.0] + [1.0] * (STEPS - 1)
    shutil.rmtree(run / "model")
    shutil.rmtree(run / "checkpoints" / "checkpoint-4")
    sharded_command.run(["run", "--resume", str(run)], sharding)
    assert learned(run) == whole
