"""`grpo run`: bad input is one line and exit code 2 before a model loads or anything is written."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command import Done, grpo
from patience import RUN

from grpo.core.config.schema import load_config

REWARDS = """
from grpo import loss, reward

@reward(version=1, isolation="inline")
def level(completion: str, difficulty: str) -> float:
    return 1.0

@loss(version=1)
def plain(tokens):
    return -tokens.advantages * tokens.logps
"""


@pytest.fixture
def place(tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with a model whose weights are rubbish: whoever loads them fails in other words."""
    shutil.copytree(tiny_model, tmp_path / "model")
    (tmp_path / "model" / "model.safetensors").write_text("rubbish")
    rows = [{"question": f"What is {n} + 1?", "answer": f"#### {n + 1}"} for n in range(20)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "mine.py").write_text(REWARDS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str, whole: bool = False) -> Done:
    base = [] if whole else ["--env", "gsm8k", "--model", "model", "--dataset", "rows.jsonl", *LENGTH]
    return grpo("run", *base, *arguments)


LENGTH = ["--max-completion-length", "16"]
BAD = {
    "unknown environment": ("--env gsm8", "Did you mean 'gsm8k'?"),
    "unknown reward": ("--reward proximty", "Did you mean 'proximity'?"),
    "unknown option": ("--reward proximity:tolerence=1", "tolerence"),
    "option of the wrong type": ("--env gsm8k:size=many", "size"),
    "two rewards of one name": ("--reward proximity --reward proximity:weight=2", "two rewards are named 'proximity'"),
    "missing rows": ("--dataset none.jsonl", "no file none.jsonl"),
    "broken rows": ("--dataset broken.jsonl", "broken.jsonl, line 2: not JSON"),
    "rows without a column": ("--dataset columns.jsonl", "columns.jsonl, line 1"),
    "an unusable gold": ("--dataset gold.jsonl", "gold.jsonl, line 1"),
    "no rows": ("--dataset empty.jsonl", "empty.jsonl"),
    "a column that a reward needs": ("--reward ./mine.py:level", "needs the column difficulty"),
    "negative steps": ("--steps -1", "--steps: input should be greater than or equal to 1, not -1"),
    "no steps": ("--steps 0", "--steps: "),
    "group size 1": ("--group-size 1", "--group-size: input should be greater than or equal to 2, not 1"),
    "undividable batch": ("--micro-batch-size 7", "--micro-batch-size 7 does not divide the 64 completions"),
    "wrong loss": ("--loss dappo", "Did you mean 'dapo'?"),
    "option of a loss": ("--loss cispo", "loss 'cispo' needs the option 'epsilon_high'"),
    "idle option of a loss": ("--loss dapo:delta=1.1", "delta 1.1 must be above 1 + epsilon_high = 1.2"),
    "wrong advantage": ("--advantage group_mean:scale=all", "'group' | 'batch' | 'none'"),
    "option of an advantage": ("--advantage pass_at_k", "advantage 'pass_at_k' needs the option 'k'"),
    "loss that TRL lacks": ("--loss ./mine.py:plain --set train.head=trl", "TRL's head has no loss 'plain'"),
    "wrong number": ("--lr fast", "--lr"),
    "unknown setting": ("--set loss.bta=1", "Did you mean 'loss.beta'?"),
    "pair without a value": ("--set loss.beta", "write it as key=value"),
    "missing configuration": ("--config none.toml", "cannot read the configuration none.toml"),
    "broken configuration": ("--config broken.toml", "broken.toml is not valid TOML"),
    "missing model": ("--model ./none", "there is no such folder"),
    "prompt too long": ("--max-prompt-length 5", "Raise --max-prompt-length to 115"),
    "over the context": ("--max-completion-length 1020", "together over the model's context of 1024"),
    "unwritable": ("--out rows.jsonl/run", "rows.jsonl"),
    "not empty": ("--out .", "is not empty"),
    "a file": ("--out rows.jsonl", "is a file"),
    "adapter setting without an adapter": ("--lora-rank 4", "Add --lora"),
    "unknown target": ("--lora --lora-targets q_prj", "Did you mean 'q_proj'?"),
    "processes without a cluster": ("--workers 2", "--workers is for runs on a cluster. Add --on ray"),
    "servers without a cluster": ("--servers 1", "--servers is for runs on a cluster"),
    "machines without a cluster": ("--nodes 2", "--nodes is for runs on a cluster"),
    "an address without a cluster": ("--ray-address 10.0.0.1:6379", "--ray-address is for runs on a cluster"),
    "an unknown place": ("--on slurm", "'slurm' is not 'ray'"),
    "not a run": ("--resume nowhere", "nowhere"),
    "checkpoints between iterations": ("--set loss.num_iterations=2 --save-every 3", "Choose 4."),
    "unknown tracker": ("--report-to wndb", "--report-to: input should be"),
    "no worked answers": ("--warmup-steps 2 --dataset bare.jsonl", "--warmup-steps needs worked answers"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line_and_exit_code_2_and_writes_nothing(case: str, place: Path) -> None:
    (place / "broken.jsonl").write_text('{"question": "1?", "answer": "1"}\n{"question": \n')
    (place / "columns.jsonl").write_text('{"problem": "1?", "answer": "1"}\n' * 3)
    (place / "gold.jsonl").write_text('{"question": "1?", "answer": "one"}\n' * 3)
    (place / "bare.jsonl").write_text('{"question": "1?", "answer": "1"}\n' * 30)
    (place / "empty.jsonl").write_text("")
    (place / "broken.toml").write_text("env = ")
    before = sorted(place.rglob("*"))
    arguments, says = BAD[case]
    resumes = "--resume" in arguments
    done = run(*arguments.split(), whole=resumes)
    assert done.returncode == 2
    assert says in done.stderr
    if "Usage:" not in done.stderr:  # click's own complaint about a flag has its form
        assert done.stderr.count("\n") == 1, done.stderr
        assert done.stderr.startswith("grpo: ")
    assert done.stdout == ""
    assert sorted(path for path in place.rglob("*") if "__pycache__" not in path.parts) == before


def test_no_environment_is_exit_code_2(place: Path) -> None:
    done = run("--model", "model", whole=True)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "--env gsm8k" in done.stderr


@pytest.mark.parametrize("dry", [[], ["--dry-run"]])
def test_a_disk_too_full_for_the_checkpoints_is_refused(dry: list[str], place: Path) -> None:
    config = json.loads((place / "model" / "config.json").read_text())
    config |= {"hidden_size": 65536, "intermediate_size": 2**22, "num_hidden_layers": 40}
    del config["layer_types"]
    (place / "model" / "config.json").write_text(json.dumps(config))
    done = run(*dry, "--set", "train.check_memory=false")
    assert done.returncode == 2
    assert "the checkpoints need about" in done.stderr
    assert not (place / "runs").exists()


def test_resuming_takes_no_other_options(place: Path) -> None:
    for more in (["--lr", "1e-4"], ["--set", "seed=1"], ["--dry-run"], ["--config", "x.toml"]):
        done = run("--resume", "run", *more, whole=True)
        assert (done.returncode, "leave the other options out" in done.stderr) == (2, True), more


def test_a_dry_run_shows_the_plan_loads_no_weights_and_writes_nothing(place: Path) -> None:
    before = sorted(place.rglob("*"))
    done = run("--dry-run", "--steps", "7", "--reward", "proximity:weight=2", "--lora")
    assert (done.returncode, done.stderr) == (0, "")
    for part in ("7 of 8 prompts x 8 completions", "proximity x 2", "LoRA rank 16", "18 training rows (rows.jsonl)"):
        assert part in done.stdout
    assert "nothing was trained" in done.stdout
    assert sorted(place.rglob("*")) == before


def test_a_dry_run_whose_reader_went_away_says_nothing_of_a_run(place: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "grpo", "run", "--dry-run", "--env", "gsm8k", "--reward", "proximity"]
    done = subprocess.run(command, cwd=place, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=RUN)
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")


def test_what_a_library_logs_to_stdout_when_it_is_imported_is_no_result(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "chatty.py").write_text(  # as DeepSpeed does
        "import logging, sys\n"
        "logger = logging.getLogger('chatty')\n"
        "logger.addHandler(logging.StreamHandler(sys.stdout))\n"
        "logger.warning('unable to detect an accelerator')\n"
    )
    (place / "mine.py").write_text(f"import chatty\n{REWARDS}")
    monkeypatch.syspath_prepend(str(place))
    done = run("--reward", "proximity", "--loss", "mine.py:plain", "--dry-run")
    assert (done.returncode, done.stderr.count("unable to detect an accelerator")) == (0, 1)
    assert "unable to detect" not in done.stdout
    assert "dry run: nothing was trained" in done.stdout


def test_a_dry_run_needs_no_rollout_server_and_says_that_the_run_will(place: Path) -> None:
    flags = ["--rollout", "vllm-server", "--server-url", "http://127.0.0.1:9"]  # the port that discards: nobody listens
    done = run("--dry-run", *flags)
    assert done.returncode == 0
    assert "nothing was trained" in done.stdout
    assert "would not start: no rollout server answers at http://127.0.0.1:9" in done.stderr
    assert "grpo serve-rollouts" in done.stderr
    assert run(*flags).returncode == 2


@pytest.mark.core
def test_rubbish_for_weights_is_noticed_when_they_are_loaded(place: Path) -> None:
    # The test of the tests above: only whoever loads the weights sees that they are rubbish.
    done = run("--quiet")
    assert done.returncode == 2
    assert f"cannot load the weights of '{place / 'model'}'" in done.stderr


def test_flags_reach_the_settings_that_they_name(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: dict[str, Any] = {}

    def remember(file: Path | None, pairs: tuple[str, ...], flags: dict[str, Any]) -> Any:
        loaded["config"] = load_config(file, pairs, flags)
        return loaded["config"]

    monkeypatch.setattr("grpo.core.cli.run.load_config", remember)
    text = (
        "--dry-run --seed 5 --steps 3 --epochs 2 --limit 9 --lr 0.5 --group-size 4 --prompts-per-step 2 "
        "--micro-batch-size 2 --loss bnpo --beta 0.1 --temperature 0.9 --max-prompt-length 900 --lora --lora-rank 4 "
        "--lora-alpha 5 --lora-targets q_proj,v_proj --eval-every 7 --eval-size 1 --save-every 11 --out there "
        "--reward proximity --reward ./mine.py:level --set train.limit=8"
    )
    (place / "rows.jsonl").write_text(
        "".join(
            json.dumps({"question": f"{n}?", "answer": f"#### {n}", "difficulty": "easy"}) + "\n" for n in range(20)
        )
    )
    done = run(*text.split())
    assert done.returncode == 0, done.stderr
    settings = loaded["config"].model_dump(mode="json", exclude_defaults=True)
    assert settings == {
        "env": "gsm8k",
        "model": "model",
        "dataset": "rows.jsonl",
        "out": "there",
        "seed": 5,
        "rewards": ["proximity", "./mine.py:level"],
        "train": {
            "steps": 3,
            "epochs": 2.0,
            "limit": 9,
            "lr": 0.5,
            "group_size": 4,
            "prompts_per_step": 2,
            "micro_batch_size": 2,
        },
        "loss": {"type": "bnpo", "beta": 0.1},
        "rollout": {"temperature": 0.9, "max_prompt_length": 900, "max_completion_length": 16},
        "lora": {"enabled": True, "rank": 4, "alpha": 5.0, "targets": ["q_proj", "v_proj"]},
        "evaluation": {"every": 7, "size": 1},
        "output": {"save_every": 11},
    }


@pytest.mark.slow
def test_the_installed_command_says_the_same_in_a_process_of_its_own(place: Path) -> None:
    command = [sys.executable, "-m", "grpo", "run", "--env", "gsm8k", "--steps", "-1"]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 2
    assert done.stderr == "grpo: --steps: input should be greater than or equal to 1, not -1\n"
    assert done.stdout == ""


def test_settings_are_refused_before_libraries_load(tmp_path: Path) -> None:
    code = (
        "import sys; from grpo.core.cli.main import cli\n"
        "try: cli(['run'], standalone_mode=False)\n"
        "except Exception as error: print(error, 'grpo.core.run.job' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("no environment. ")
    assert done.stdout.endswith(" False\n")
