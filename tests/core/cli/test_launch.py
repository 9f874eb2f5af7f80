"""A batch script for SLURM: what is refused before it is written, and what a shell makes of it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from command import grpo

RUN = ("--env", "gsm8k", "--reward", "proximity", "--steps", "4", "--eval-size", "0")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--", *RUN, "--out", "o"], "add --slurm"),
        (["--slurm", "--", *RUN], "name the run directory with --out"),
        (["--slurm", "--time", "soon", "--", *RUN, "--out", "o"], "no time limit of SLURM"),
        (["--slurm", "--option", "partition=gpu", "--", *RUN, "--out", "o"], "--option=--partition=gpu"),
        (["--slurm", "--nodes", "3", "--", *RUN, "--out", "o"], "cannot be dealt out to 24 processes"),
        (["--slurm", "--server-nodes", "1", "--", *RUN, "--out", "o"], "--server-nodes go with --rollout vllm-server"),
        (["--slurm", "--", *RUN, "--out", "o", "--rollout", "vllm-server"], "add them"),
        (["--slurm", "--", "--resume", "o"], "leave --resume"),
        (["--slurm", *RUN, "--out", "o"], "'--env'. The arguments of grpo run follow after --"),
        (["--slurm", "--", *RUN, "--out", "o", "--on", "ray"], "--on ray is for a cluster of Ray"),
        (["--slurm", "--tensor-parallel", "3", "--", *RUN, "--out", "o"], "does not divide the 8 GPUs"),
        (["--slurm", "--", *RUN, "--out", "o", "--group-sise", "4"], "--group-sise"),
    ],
)
def test_what_cannot_work_is_refused_before_a_script_is_written(words: list[str], error: str) -> None:
    code, out, errors = grpo("launch", *words)
    assert (code, out) == (2, "")
    assert error in errors


@pytest.mark.parametrize("name", ["plain", "with space", "quote'd $HOME `id`"])
def test_a_shell_reads_the_arguments_as_they_were_written(tmp_path: Path, name: str) -> None:
    out = tmp_path / name
    _, script, _ = grpo("launch", "--slurm", "--gpus-per-node", "0", "--", *RUN, "--out", str(out))
    lines = [line for line in script.splitlines() if re.match(r"RUN=|WHAT=\(", line)]
    shown = subprocess.run(
        ["bash", "-c", "\n".join([*lines, 'printf "%s\\n" "$RUN" "${WHAT[@]}"'])],
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout.splitlines() == [str(out), *RUN, "--out", str(out)]
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "arguments", "sharded"),
    [
        (["--gpu", "H100"], ["--model", "Qwen2.5-0.5B"], False),
        (["--gpu", "H100"], ["--model", "Qwen/Qwen3-8B", "--lora"], False),
        (["--gpu", "H100"], ["--model", "Qwen/Qwen3-8B"], True),
        ([], ["--model", "Qwen/Qwen3-8B"], True),
        (["--gpu", "24GB"], ["--model", "Qwen2.5-3B"], True),
        (["--gpu", "H100", "--sharding", "none"], ["--model", "Qwen/Qwen3-8B"], False),
        (["--gpu", "H100", "--sharding", "fsdp2"], ["--model", "Qwen2.5-0.5B"], True),
    ],
)
def test_a_policy_that_one_gpu_cannot_hold_is_sharded(words: list[str], arguments: list[str], sharded: bool) -> None:
    code, script, _ = grpo("launch", "--slurm", *words, "--", *RUN, *arguments, "--out", "o")
    assert code == 0
    assert ("export ACCELERATE_USE_FSDP=true\n" in script) == sharded
    assert ("export FSDP_VERSION=2\n" in script) == sharded
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "arguments", "error"),
    [
        (["--gpu", "24GB"], ["--model", "Qwen2.5-32B", "--prompts-per-step", "64"], "--rollout vllm-server"),
        (
            ["--gpu", "24GB", "--server-nodes", "1"],
            ["--model", "Qwen2.5-14B", "--rollout", "vllm-server"],
            "Raise --tensor-parallel",
        ),
        (["--gpu", "big"], ["--model", "Qwen2.5-14B"], "'big' is no"),
    ],
)
def test_machines_that_cannot_hold_the_run_are_refused_with_those_that_can(
    words: list[str], arguments: list[str], error: str
) -> None:
    code, out, errors = grpo("launch", "--slurm", *words, "--", *RUN, *arguments, "--out", "o")
    assert (code, out) == (2, "")
    assert error in errors


def test_servers_are_on_machines_of_their_own_and_the_run_is_told_where() -> None:
    words = ("--slurm", "--nodes", "2", "--server-nodes", "1", "--tensor-parallel", "2", "--")
    served = ("--rollout", "vllm-server", "--lora", "--lora-rank", "8", "--prompts-per-step", "16")
    _, script, _ = grpo("launch", *words, *RUN, "--out", "o", *served)
    assert "#SBATCH --nodes=3\n" in script
    assert "serve-rollouts --host 0.0.0.0 --lora-rank 8 --tensor-parallel 2" in script
    assert "number < 4" in script  # servers of two GPUs each
    assert "GRPO_SERVER_TOKEN=$(" in script
    assert script.count('WHAT+=(--server-url "$(with_commas "${URLS[@]}")")') == 1


def test_a_run_is_continued_and_an_empty_folder_is_not_taken_for_one(tmp_path: Path) -> None:
    out = tmp_path / "a"
    out.mkdir()

    def read() -> tuple[str, str]:
        _, script, errors = grpo("launch", "--slurm", "--gpus-per-node", "0", "--", *RUN, "--out", str(out))
        lines = [line for line in script.splitlines() if re.match(r"RUN=|WHAT=\(|if .*--resume", line)]
        assert len(lines) == 3
        shell = ["bash", "-c", "\n".join([*lines, 'echo "${WHAT[0]}"'])]
        return subprocess.run(shell, capture_output=True, text=True, check=True).stdout.strip(), errors

    assert read() == ("--env", "")
    for name in ("config.json", "versions.json"):
        (out / name).write_text("{}")
    first, errors = read()
    assert first == "--resume"
    assert "holds a run already" in errors


def test_a_script_that_says_something_else_is_not_written_over(tmp_path: Path) -> None:
    script, words = tmp_path / "job.sh", ("--slurm", "-o", str(tmp_path / "job.sh"), "--", *RUN, "--out", "o")
    assert grpo("launch", *words).returncode == 0
    written = script.read_text()
    assert grpo("launch", *words).returncode == 0  # the same again
    script.write_text(written + "module load cuda\n")
    code, _, errors = grpo("launch", *words)
    assert (code, script.read_text()) == (2, written + "module load cuda\n")
    assert "exists already and differs" in errors
