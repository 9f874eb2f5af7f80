"""The flags of settings: each is there with its text and default, and its value arrives under the setting's key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from grpo.core.cli.flags import FLAGS, PANELS, SETTINGS, every_flag, given, named_by_flags
from grpo.core.cli.main import cli
from grpo.core.cli.run import run
from grpo.core.config.schema import load_config
from grpo.plugins.errors import UsageError

# A flag that goes, or gets another name, breaks somebody's script.
NAMES = (
    "--env --reward --env-reward --verifier --model --dataset --config --set --steps --epochs --limit --seed --lr "
    "--group-size --prompts-per-step --micro-batch-size --warmup-steps --checkpointing --loss --advantage --beta "
    "--session --rollout --server-url --lora-sync --ahead --partial --share-weights --temperature --max-prompt-length "
    "--max-completion-length "
    "--lora --full --lora-rank --lora-alpha --lora-targets --bits --eval-every --eval-size --save-every --canaries "
    "--dtype --canary-cases --report-to --out --resume --dry-run --quiet --print-schema --env-processes "
    "--agent-seconds --agents-at-once "
    "--on --ray-address --workers --servers --nodes --refill --dynamic --sampler --agent --stop-on-alarm "
    "--project --run-name --run-group --tags --chat-template-kwargs "
)


def read(*arguments: str) -> dict[str, Any]:
    """What a command with every flag reads from its arguments."""
    settings: dict[str, Any] = {}

    @click.command()
    @every_flag
    def command(**values: Any) -> None:
        settings.update(given(values))

    command.main(list(arguments), standalone_mode=False)
    return settings


def help_of(command: click.Command) -> str:
    with click.Context(command, terminal_width=1000, max_content_width=1000) as context:
        return command.get_help(context)


def test_the_flags_of_run_are_these() -> None:
    shown = [option for option in run.params if not getattr(option, "hidden", False)]
    names = [name for option in shown for name in (*option.opts, *option.secondary_opts)]
    assert sorted(names) == sorted(NAMES.split())


def test_every_flag_shows_its_text_and_its_default() -> None:
    shown = {line.split()[0]: " ".join(line.split()) for line in help_of(run).splitlines() if line.startswith("  --")}
    for line in (
        "--env SPEC Environment, for example gsm8k; repeat for several.",
        "--seed INTEGER Seed of the row order, the sampling and a new adapter. Default: 0.",
        "--steps INTEGER Optimizer steps. Default: 60 for the embedded model, else from epochs.",
        "--rollout BACKEND Rollout backend: hf, vllm, vllm-server. Default: hf.",
        "--temperature FLOAT Sampling temperature. Default: 1.",
        "--ahead BATCHES Batches that vLLM samples ahead while the policy trains. Default: 0.",
        "--lora / --full Train a low-rank adapter, or all weights. Default: --full.",
        "--report-to A,B Trackers that also receive the metrics: wandb, tensorboard, trackio, mlflow, otel.",
        "--server-url URL Address of grpo serve-rollouts; several: A,B. Default: http://127.0.0.1:8271.",
    ):
        assert shown[line.split()[0]] == line
    for flag in FLAGS.values():
        assert not set("`[]") & set(shown[flag.name.partition("/")[0]]), "Markdown in the help"


def test_a_flag_that_is_not_given_leaves_its_setting_alone() -> None:
    assert read() == {}
    assert read("--ahead", "2", "--full") == {"rollout.ahead": 2, "lora.enabled": False}


@pytest.mark.parametrize(
    ("arguments", "read_as"),
    [
        ("--env a", {"env": "a"}),
        ("--env a --env b:c=1", {"env": ["a", "b:c=1"]}),
        ("--reward a", {"rewards": ["a"]}),
        ("--env-reward a x --env-reward b y --env-reward a z", {"env_rewards": {"a": ["x", "z"], "b": ["y"]}}),
        ("--lora-targets q_proj,v_proj", {"lora.targets": ["q_proj", "v_proj"]}),
        ("--lora-targets q_proj", {"lora.targets": ["q_proj"]}),
        ("--lora-targets all-linear", {"lora.targets": "all-linear"}),
        ("--report-to wandb", {"output.report_to": ["wandb"]}),
        ("--lr 1", {"train.lr": 1.0}),
        (
            "--chat-template-kwargs enable_thinking=false --chat-template-kwargs style=brief",
            {"chat_template_kwargs": {"enable_thinking": False, "style": "brief"}},
        ),
        ("--bits 4", {"lora.bits": 4}),
        ("--eval-size 0", {"evaluation.size": 0}),
    ],
)
def test_values_are_read_as_a_file_would_have_them(arguments: str, read_as: dict[str, Any]) -> None:
    assert read(*arguments.split()) == read_as


def test_an_empty_list_of_trackers_is_none() -> None:
    assert read("--report-to", "") == {"output.report_to": []}
    assert load_config(None, [], {"env": "a", **read("--report-to", "")}).output.report_to == ()


def test_every_default_that_a_flag_shows_is_taken_when_it_is_given() -> None:
    fixed = {key: SETTINGS[key].default for key in FLAGS if isinstance(SETTINGS[key].default, (int, float, str))}
    words = [
        word
        for key, default in fixed.items()
        for word in ([FLAGS[key].name, str(default)] if not isinstance(default, bool) else [])
    ]
    assert load_config(None, [], {"env": "a", **read(*words)}) == load_config(None, [], {"env": "a"})


def test_the_help_lists_flags_in_titled_groups() -> None:
    panels: dict[str, list[str]] = {}
    for line in help_of(run).splitlines():
        if line.endswith(":") and not line.startswith(" "):
            panels[title := line[:-1]] = []
        elif line.startswith("  -"):
            panels[title].append(line.strip().removeprefix("-h, ").split()[0])  # click keeps the names of `grpo run -h`
    assert list(panels) == [*PANELS.values(), "Ray cluster", "Command"]
    for key, flag in FLAGS.items():
        assert flag.name.partition("/")[0] in panels[PANELS[flag.panel or key.rpartition(".")[0]]]
    assert panels["Ray cluster"] == ["--on", "--ray-address", "--workers", "--servers", "--nodes"]
    assert {"--config", "--set", "--resume", "--dry-run", "--help"} <= set(panels["Command"])
    assert max(map(len, panels.values())) <= 12


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("train.lr: input should be less", "--lr: input should be less"),
        ("seed: too small; model: no text", "--seed: too small; --model: no text"),
        ("output.report_to.0: input should be; rewards.1: no", "--report-to: input should be; --reward: no"),
        ("train.dtype='float16' with full fine-tuning", "--dtype float16 with full fine-tuning"),
        ("Lower train.prompts_per_step or train.group_size.", "Lower --prompts-per-step or --group-size."),
        (
            "with --set train.micro_batch_size=8 --set rollout.batch_size=4",
            "with --micro-batch-size 8 --set rollout.batch_size=4",
        ),
        ("Set rollout.temperature=1.", "Set --temperature 1."),
        ("lora.enabled=false or lora.enabled", "--full or --lora"),
        ("Add --lora (lora.enabled=true)", "Add --lora"),
        ("train.lr_schedule and docs/train.lr stay", "train.lr_schedule and docs/train.lr stay"),
        ("Did you mean 'train.lr'?", "Did you mean 'train.lr'?"),
        ("env 'gsm8k', split 'test'", "env 'gsm8k', split 'test'"),
    ],
)
def test_settings_in_an_error_go_by_their_flags(text: str, named: str) -> None:
    assert named_by_flags(text) == named


def test_an_error_names_what_the_user_typed(tmp_path: Path) -> None:
    def error(*arguments: str) -> str:
        failure = CliRunner().invoke(cli, ["run", "--env", "gsm8k", "--dry-run", *arguments]).exception
        assert isinstance(failure, UsageError)
        return str(failure)

    (tmp_path / "run.toml").write_text("[train]\nlr = 1000\n")
    assert error("--lr", "1000").startswith("--lr: ")
    assert error("--set", "train.lr=1000").startswith("train.lr: ")
    assert error("--config", str(tmp_path / "run.toml")).startswith("train.lr: ")
    assert error("--config", str(tmp_path / "run.toml"), "--seed", "-1").startswith("--seed: ")
    assert error("--lora-rank", "4") == "--lora-rank would do nothing without an adapter. Add --lora"


def test_a_flag_of_another_trainer_is_refused_with_its_name_here() -> None:
    for flag, meant in (
        ("--num-generations", "--group-size"),
        ("--vllm-mode", "--rollout"),
        ("--learning-rate", "--lr"),
        ("--r", "--lora-rank"),
    ):
        assert f"Did you mean '{meant}'?" in CliRunner().invoke(cli, ["run", flag, "8"]).output


def test_truth_in_a_template_is_no_text_however_it_is_written() -> None:
    for text in ("false", "False"):
        values = read("--chat-template-kwargs", f"enable_thinking={text}")
        assert load_config(None, [], {"env": "a", **values}).chat_template_kwargs == {"enable_thinking": False}
    with pytest.raises(UsageError, match="write it as NAME=VALUE"):
        read("--chat-template-kwargs", "enable_thinking")
