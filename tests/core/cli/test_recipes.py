"""The recipes of docs/scale.md for large models: what they print is printed, and what they start can be started."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from command import grpo

from grpo.core.cli.flags import given
from grpo.core.cli.run import run
from grpo.core.cli.serve import serve_rollouts
from grpo.core.config.schema import RunConfig, load_config
from grpo.core.planning.memory.budget import GIB, Device, Given, Job, best_fit
from grpo.core.planning.memory.estimate import shape
from grpo.core.planning.memory.fit import GPUS_PER_NODE
from grpo.core.planning.memory.proposal import launch_command, proposed
from grpo.core.planning.memory.shapes import shape_of
from grpo.core.planning.memory.sharded import Spread

pytestmark = pytest.mark.slow

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "scale.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("\n## Recipes\n")[2].partition("\n## ")[0].replace("\\\n", "")
COMMANDS = re.findall(r"^    \$ (.+)\n((?:    (?!\$).+\n)*)", SECTION, re.MULTILINE)
H100 = Device("cuda", 80 * GIB)


def words_after(command: str, name: str) -> list[str]:
    """Returns the arguments of `grpo NAME` in a line of a shell, also where another program starts it."""
    return shlex.split(command.partition(f"grpo {name} ")[2].removesuffix("&"))


@pytest.mark.parametrize(("command", "shown"), COMMANDS)
def test_a_command_of_the_recipes_is_as_it_is_written(
    command: str, shown: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    if re.search(r"grpo (plan|launch) ", command):
        done = grpo(*shlex.split(command)[1:])
        assert done.returncode == 0, done.stderr
        for line in shown.splitlines():
            assert line.strip() in done.stdout + done.stderr
    elif "grpo serve-rollouts " in command:
        serve_rollouts.make_context("serve-rollouts", words_after(command, "serve-rollouts"))
    else:
        values = run.make_context("run", words_after(command, "run")).params
        config = load_config(values.pop("config_file"), values.pop("pairs"), given(values))
        processes = int((re.findall(r"--num_processes (\d+)", command) or ["1"])[0])
        assert config.train.prompts_per_step * config.train.group_size % processes == 0


def test_what_the_recipes_start_fits_its_gpus() -> None:
    small, large = (shape(shape_of(name), "bfloat16", config_of().lora) for name in ("Qwen3-8B", "Qwen2.5-32B"))
    for model, gpus, prompts, micro in ((small, 6, 24, 4), (large, 16, 64, 2)):
        job, spread = Job(4096, prompts * 8 // gpus, "vllm", reserved=0), Spread(gpus, "everything")
        assert best_fit(model, job, H100, Given("full", micro), spread) is not None


def test_the_fewest_gpus_are_proposed_and_one_fewer_does_not_hold_it() -> None:
    large = shape(shape_of("Qwen2.5-72B"), "bfloat16", config_of().lora)
    more = proposed(large, Job(4096, 64 * 8), H100, GPUS_PER_NODE)
    assert more is not None
    assert more.served, "one GPU cannot hold the whole policy while it samples"
    assert more.gpus > 8
    half = Spread(more.gpus // 2, "everything")
    assert best_fit(large, Job(4096, 64 * 8 // half.gpus, "vllm", reserved=0), H100, spread=half) is None
    assert launch_command(more).startswith(f"grpo launch --slurm --nodes {more.nodes} --server-nodes 1")
    assert proposed(large, Job(4096, 7), H100, GPUS_PER_NODE) is None, "seven completions cannot be dealt out"


def config_of() -> RunConfig:
    return load_config(None, (), {"env": "gsm8k"})
