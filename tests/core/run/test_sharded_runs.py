"""Whole runs of two processes that really share a policy, beside the same run in which each has all of it.

FSDP 2 and DeepSpeed shard over gloo on a CPU, every tensor however small (tests/support/sharded_command.py). What is
compared goes through all of a run: warm-up, sampling, held-out evaluation by processes with different numbers of
problems, reference, canaries, checkpoints, a stop or a kill and what follows, the final model.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Mapping
from pathlib import Path

import psutil
import pytest
import sharded_command
import torch
from forked_command import Forked, forked_together
from patience import RUN
from safetensors.torch import load_file
from same_metrics import assert_same_metrics

from grpo.core.config.sections import LoraSection
from grpo.core.policy.export import export_weights
from grpo.core.policy.load import load_policy
from grpo.core.policy.weights import find_weights, load_weights
from grpo.core.record.checkpoint import damage, last_checkpoint
from grpo.core.record.run_dir import RunDir, open_run_dir, read_json, read_metrics

pytestmark = pytest.mark.slow

COMMON = """
[rollout]
max_completion_length = 24
[train]
steps = 3
lr = 1e-4
warmup_steps = 2
warmup_lr = 1e-5
prompts_per_step = 4
group_size = 4
micro_batch_size = 4
max_grad_norm = 0.3
[loss]
beta = 0.05
[evaluation]
size = 5
every = 2
[output]
save_every = 1
keep = 9
"""
FULL = 'env = "gsm8k"\ndataset = "embedded"\nrewards = ["proximity"]\n[canaries]\ncases = true\n' + COMMON
ADAPTER = '[lora]\nenabled = true\nrank = 4\n[[env]]\nname = "gsm8k"\noptions = { dataset = "embedded" }\n' + (
    '[[env]]\nname = "guess"\n' + COMMON
)
KINDS = {"full": FULL, "adapter": ADAPTER}
NOISE = "k_proj.bias"  # softmax takes its gradient away, and Adam makes steps of what rounding leaves


class Runs:
    """Runs of one kind and way of sharding each, made once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.said: dict[str, str] = {}
        for kind, text in KINDS.items():
            (folder / f"{kind}.toml").write_text(text, encoding="utf-8")

    def path(self, kind: str, way: str) -> Path:
        return self.folder / f"{kind}-{way}"

    def arguments(self, kind: str, way: str) -> list[str]:
        return ["run", "--config", str(self.folder / f"{kind}.toml"), "--out", str(self.path(kind, way))]

    def sharding(self, way: str) -> Mapping[str, str]:
        if way.startswith("zero"):
            return sharded_command.zero(int(way[-1]), self.folder)
        return sharded_command.FSDP

    def whole(self, kind: str, way: str) -> Path:
        """A run from its first step to its last."""
        path = self.path(kind, way)
        if not path.exists() and way == "ddp":
            forked_together(self.arguments(kind, way), self.folder)
        elif not path.exists():
            self.said[path.name] = sharded_command.run(self.arguments(kind, way), self.sharding(way))
        return path

    def broken(self, kind: str, way: str, number: int) -> Path:
        """A run whose processes get a signal after the first step, and that is resumed."""
        path = self.path(kind, way)
        if path.exists():
            return path
        launcher = sharded_command.command(self.arguments(kind, way), self.sharding(way))
        try:
            seconds = time.monotonic() + RUN
            while not (path / "checkpoints" / "checkpoint-1" / "complete.json").exists():
                assert launcher.poll() is None, launcher.communicate()[0][-5000:]
                assert time.monotonic() < seconds
                time.sleep(0.05)
            for process in psutil.Process(launcher.pid).children():
                os.kill(process.pid, number)
            launcher.communicate(timeout=RUN)
        finally:
            for process in psutil.Process(launcher.pid).children() if launcher.poll() is None else []:
                process.kill()
            launcher.kill()
        assert not (path / "model").exists()
        self.said[path.name] = sharded_command.run(["run", "--resume", str(path)], self.sharding(way))
        return path


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("sharded"))


def weights(folder: Path) -> dict[str, torch.Tensor]:
    (file,) = folder.glob("*.safetensors")
    return load_file(file)


def assert_alike(run: Path, other: Path) -> None:
    """Both ended with the same weights and told the same, but for rounding."""
    assert (read_json(RunDir(run).state) or {})["status"] == "done"
    for folder in ("warmup", "checkpoints/checkpoint-2", "model"):
        found, expected = weights(run / folder), weights(other / folder)
        assert found.keys() == expected.keys()
        for name, tensor in expected.items():
            assert found[name].dtype == tensor.dtype
            if not name.endswith(NOISE):
                torch.testing.assert_close(found[name], tensor, rtol=1e-4, atol=1e-5, msg=f"{folder}: {name}")
    told = read_metrics(open_run_dir(run))
    assert_same_metrics(told, read_metrics(open_run_dir(other)))
    assert "held_out/accuracy" in told[0]
    assert "kl" in told[1]
    for checkpoint in (run / "checkpoints").iterdir():
        assert damage(checkpoint) is None


def assert_moved(run: Path) -> None:
    """What is compared is not two runs that did nothing."""
    before, after = weights(run / "warmup"), weights(run / "model")
    assert max((after[name] - before[name]).abs().max().item() for name in after) > 1e-5
    assert any(row["kl"] > 1e-7 for row in read_metrics(open_run_dir(run))[1:])


@pytest.mark.parametrize(
    ("kind", "way", "number"),
    [
        pytest.param("full", "fsdp", signal.SIGKILL, id="full-fsdp-killed"),
        pytest.param("adapter", "fsdp", None, id="adapter-fsdp", marks=pytest.mark.nightly),
        pytest.param(
            "full", "zero2", signal.SIGTERM, id="full-zero2-stopped", marks=[pytest.mark.deepspeed, pytest.mark.nightly]
        ),
        pytest.param("full", "zero3", None, id="full-zero3", marks=[pytest.mark.deepspeed, pytest.mark.nightly]),
        pytest.param(
            "adapter",
            "zero3",
            signal.SIGKILL,
            id="adapter-zero3-killed",
            marks=[pytest.mark.deepspeed, pytest.mark.nightly],
        ),
    ],
)
def test_a_sharded_run_is_the_run_of_whole_policies(
    runs: Runs, kind: str, way: str, number: signal.Signals | None
) -> None:
    plain = runs.whole(kind, "ddp")
    assert_moved(plain)
    run = runs.whole(kind, way) if number is None else runs.broken(kind, way, number)
    assert_alike(run, plain)
    said = runs.said[run.name]
    assert said.count("done after step 3") == 1
    assert "Warning" not in said


@pytest.mark.parametrize(
    ("way", "number"),
    [
        pytest.param("fsdp", signal.SIGKILL, id="fsdp"),
        pytest.param("zero2", signal.SIGTERM, id="zero2", marks=pytest.mark.deepspeed),
    ],
)
def test_what_a_sharded_run_leaves_behind_loads_and_exports(
    way: str, number: signal.Signals, runs: Runs, tmp_path: Path
) -> None:
    run = runs.broken("full", way, number)
    exported = export_weights(find_weights(str(run)), tmp_path / "full", merge=False)
    torch.testing.assert_close(weights(exported), weights(run / "model"), rtol=0, atol=0)
    load_weights(find_weights(str(exported)))
    unfinished = tmp_path / "unfinished"  # its weights are those of the last checkpoint
    shutil.copytree(run, unfinished)
    shutil.rmtree(unfinished / "model")
    assert last_checkpoint(open_run_dir(unfinished)) == unfinished / "checkpoints" / "checkpoint-3"
    again = export_weights(find_weights(str(unfinished)), tmp_path / "again", merge=False)
    assert {file.name for file in again.iterdir()} == {file.name for file in exported.iterdir()}
    torch.testing.assert_close(weights(again), weights(run / "model"), rtol=0, atol=0)


@pytest.mark.nightly
def test_a_sharded_adapter_exports_alone_and_merged(runs: Runs, tmp_path: Path) -> None:
    run = runs.whole("adapter", "fsdp")
    export_weights(find_weights(str(run)), tmp_path / "alone", merge=False)
    merged = export_weights(find_weights(str(run)), tmp_path / "merged", merge=True)
    found = find_weights(str(tmp_path / "alone"))
    policy = load_policy(found.base, "float32", LoraSection(), adapter=found.adapter, trainable=False)
    folded = policy.merge_and_unload().state_dict()
    for name, tensor in weights(merged).items():
        torch.testing.assert_close(tensor, folded[name])


def test_fsdp_that_would_not_happen_is_refused_before_a_model_loads(runs: Runs) -> None:
    said = sharded_command.run(runs.arguments("full", "lost"), sharded_command.FSDP, sharded_command.AS_IT_IS, code=1)
    assert "FSDP 2 was asked for, and accelerate would not shard" in said
    assert "loading the model" not in said
    assert not runs.path("full", "lost").exists()


@pytest.mark.deepspeed
def test_deepspeed_that_would_not_happen_is_refused_before_a_model_loads(runs: Runs) -> None:
    variables = {**runs.sharding("zero3"), "ACCELERATE_USE_CPU": "true"}
    said = sharded_command.run(runs.arguments("full", "lost"), variables, code=1)
    assert "DeepSpeed ZeRO-3 was asked for, and accelerate would not shard" in said
    assert not runs.path("full", "lost").exists()


@pytest.mark.deepspeed
def test_settings_of_deepspeed_that_contradict_the_plan_are_refused(runs: Runs) -> None:
    variables = runs.sharding("zero2")
    file = Path(variables["ACCELERATE_DEEPSPEED_CONFIG_FILE"])
    file.write_text(json.dumps({**json.loads(file.read_text()), "gradient_clipping": 1.0}))
    said = sharded_command.run(runs.arguments("full", "lost"), variables, code=1)
    assert "gradient_clipping is 1.0" in said


@pytest.mark.deepspeed
def test_a_run_of_deepspeed_is_resumed_by_as_many_processes_with_its_sharding_only(runs: Runs, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(runs.broken("full", "zero2", signal.SIGTERM), run)
    shutil.rmtree(run / "model")
    alone = Forked(["run", "--resume", str(run)], tmp_path / "alone")
    assert alone.wait(RUN) == 2
    assert "shared DeepSpeed ZeRO-2, and nothing now: the optimizer's state in its checkpoints" in alone.said
    three = sharded_command.run(["run", "--resume", str(run)], runs.sharding("zero2"), code=1, processes=3)
    assert three.count("were 2, and are 3 now: DeepSpeed wrote the optimizer's state in 2 parts") == 1
    assert "loading the model" not in alone.said + three
