"""The plan: what is chosen where the user said nothing, and what is refused before a model loads."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from safetensors.numpy import load_file

from grpo import hookimpl
from grpo.core.config.schema import parse_config
from grpo.core.env.mixture import with_dataset
from grpo.core.plan import Plan
from grpo.core.planning.decide import make_plan
from grpo.core.record.disk import refuse_full_disk, refuse_unwritable
from grpo.core.train.sft.data import run_order
from grpo.plugins._host.discovery import installed_entries
from grpo.plugins._host.entry_points import Entry
from grpo.plugins._spec.binding import BoundEnv
from grpo.plugins.errors import DatasetError, UsageError
from grpo.plugins.host import Host
from grpo.plugins.specs import EnvSpec


class Adding(gymnasium.Env[str, str]):
    """Makes its own problems."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        return f"What is {seed} + 1?", {}


class Endless:
    """A plugin with that environment."""

    @hookimpl
    def grpo_envs(self) -> list[EnvSpec]:
        return [EnvSpec(name="endless", version=1, factory=Adding)]


MakePlan = Callable[..., Plan]
REWARDS = """
from grpo import reward

@reward(version=1, isolation="inline")
def level(completion: str, difficulty: str) -> float:
    return 1.0
"""


@pytest.fixture(scope="module")
def host() -> Host:
    return Host.discover()


@pytest.fixture
def plan_of(tiny_model: Path, tmp_path: Path, host: Host, monkeypatch: pytest.MonkeyPatch) -> MakePlan:
    """Plans a run of the tiny model on forty embedded problems; sections are merged into that."""
    monkeypatch.chdir(tmp_path)

    def plan(**changes: Any) -> Plan:
        tree: dict[str, Any] = {"env": "gsm8k", "dataset": "embedded", "model": str(tiny_model)}
        tree |= {"train": {"limit": 40}, "rollout": {"max_completion_length": 16}, "evaluation": {"size": 4}}
        for key, value in changes.items():
            tree[key] = {**tree.get(key, {}), **value} if isinstance(value, dict) else value
        return make_plan(parse_config(tree), host)

    return plan


def refusal(plan_of: MakePlan, **changes: Any) -> str:
    with pytest.raises(UsageError) as error:
        plan_of(**changes)
    return str(error.value)


def write_rows(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def problems(count: int, **more: Any) -> list[dict[str, Any]]:
    return [{"question": f"What is {n} + 1?", "answer": f"It is {n + 1}.\n#### {n + 1}", **more} for n in range(count)]


def test_a_plan_leaves_nothing_open_that_a_run_needs(plan_of: MakePlan, tiny_model: Path) -> None:
    plan = plan_of()
    train = plan.config.train
    assert None not in (train.steps, train.lr, train.warmup_lr, train.micro_batch_size, train.dtype)
    assert None not in (plan.config.output.save_every, plan.config.rollout.max_completion_length)
    assert (len(plan.train), len(plan.envs[0].held_out), plan.processes) == (40, 4, 1)
    assert [reward.name for reward in plan.rewards] == ["proximity", "gsm8k.soft_format"]
    assert [verifier.name for verifier in plan.verifiers] == ["gsm8k"]
    assert plan.parameters == sum(weight.size for weight in load_file(tiny_model / "model.safetensors").values())
    assert not list(Path.cwd().iterdir()), "a plan writes nothing"


def test_a_model_that_is_none_is_refused_before_the_rows_are_read(
    plan_of: MakePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    message = refusal(plan_of, model="nosuch", dataset="ann/no-such-rows")
    assert "'nosuch': it is no folder here and no model of the hub (HF_HUB_OFFLINE is set)" in message


@pytest.mark.parametrize(
    ("train", "iterations", "steps"),
    [
        ({}, 1, 5),
        ({"epochs": 2}, 1, 10),
        ({"epochs": 0.5}, 1, 3),
        ({"epochs": 0.001}, 1, 1),
        ({"steps": 7}, 1, 7),
        ({"steps": 7, "epochs": 9}, 1, 7),
        ({}, 3, 15),
        ({"limit": 9}, 1, 2),
    ],
)
def test_steps_come_from_epochs_over_the_rows(
    train: dict[str, Any], iterations: int, steps: int, plan_of: MakePlan
) -> None:
    assert plan_of(train=train, loss={"num_iterations": iterations}).config.train.steps == steps


@pytest.mark.slow
def test_the_learning_rate_depends_on_what_is_trained(plan_of: MakePlan) -> None:
    full, lora = plan_of().config.train, plan_of(lora={"enabled": True}).config.train
    assert lora.lr == pytest.approx(10 * full.lr)
    assert full.warmup_lr == pytest.approx(10 * full.lr)
    assert plan_of(train={"lr": 0.5, "warmup_lr": 0.25}, lora={"enabled": True}).config.train.lr == 0.5


@pytest.mark.parametrize(
    ("train", "processes", "micro", "accumulation"),
    [
        ({}, 1, 32, 2),
        ({}, 2, 32, 1),
        ({"micro_batch_size": 16}, 2, 16, 2),
        ({"prompts_per_step": 3, "group_size": 5}, 1, 15, 1),
        ({"prompts_per_step": 1, "group_size": 7}, 7, 1, 1),
    ],
)
def test_a_batch_is_divided_among_processes_and_micro_batches(
    train: dict[str, Any],
    processes: int,
    micro: int,
    accumulation: int,
    plan_of: MakePlan,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WORLD_SIZE", str(processes))
    plan = plan_of(train=train)
    assert (plan.config.train.micro_batch_size, plan.accumulation, plan.processes) == (micro, accumulation, processes)
    assert micro * accumulation * processes == plan.batch_size


def test_a_batch_that_cannot_be_divided_is_refused_with_what_can(
    plan_of: MakePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = refusal(plan_of, train={"prompts_per_step": 2, "group_size": 3, "micro_batch_size": 4})
    assert "train.micro_batch_size 4 does not divide the 6 completions" in message
    assert "Choose one of 1, 2, 3, 6." in message
    monkeypatch.setenv("WORLD_SIZE", "4")
    message = refusal(plan_of, train={"prompts_per_step": 3, "group_size": 3})
    assert "3 prompts x 3 completions = 9 cannot be shared by 4 processes" in message


def test_a_checkpoint_falls_between_generations(plan_of: MakePlan) -> None:
    assert plan_of(loss={"num_iterations": 3}).config.output.save_every == 21
    message = refusal(plan_of, loss={"num_iterations": 3}, output={"save_every": 10})
    assert "output.save_every 10 is not a multiple of loss.num_iterations 3" in message
    assert "Choose 12." in message


def test_an_over_long_prompt_is_named_by_its_place(plan_of: MakePlan, tmp_path: Path) -> None:
    rows = problems(20)
    rows[3]["question"] = "Why? " * 200
    file = write_rows(tmp_path / "rows.jsonl", rows)
    message = refusal(plan_of, dataset=file, rollout={"max_prompt_length": 300})
    assert f"split 'train', {file}, line 4: the prompt has" in message
    assert "over rollout.max_prompt_length 300" in message
    rows[3], rows[19] = rows[19], rows[3]
    file = write_rows(tmp_path / "rows.jsonl", rows)
    assert f"split 'test', {file}, line 20:" in refusal(plan_of, dataset=file, rollout={"max_prompt_length": 300})


def test_a_prompt_and_completion_over_the_context_name_the_length_that_fits(plan_of: MakePlan) -> None:
    longest = plan_of().longest_prompt
    fits = 1024 - longest
    assert plan_of(rollout={"max_completion_length": fits}).longest_prompt == longest
    message = refusal(plan_of, rollout={"max_completion_length": fits + 1})
    assert f"rollout.max_completion_length is {fits + 1}: together over the model's context of 1024" in message
    assert f"Lower rollout.max_completion_length to {fits} or drop the row." in message


def test_a_prompt_that_fills_the_context_alone_can_only_be_dropped(plan_of: MakePlan, tmp_path: Path) -> None:
    rows = problems(20)
    rows[0]["question"] = "Why? " * 1000
    message = refusal(plan_of, dataset=write_rows(tmp_path / "rows.jsonl", rows))
    assert "rows.jsonl, line 1:" in message
    assert message.endswith("of 1024. Drop the row whose prompt alone fills the context.")


def test_a_worked_answer_over_the_context_is_refused_where_it_would_be_learned(
    plan_of: MakePlan, tmp_path: Path
) -> None:
    rows = problems(20)
    rows[5]["answer"] = "so " * 900 + "\n#### 6"
    file = write_rows(tmp_path / "rows.jsonl", rows)
    assert plan_of(dataset=file)
    message = refusal(plan_of, dataset=file, train={"warmup_steps": 1})
    assert "rows.jsonl, line 6:" in message
    assert "its worked answer" in message


def test_a_reward_whose_column_some_row_lacks_is_refused_with_that_row(plan_of: MakePlan, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(REWARDS)
    reward = [f"{tmp_path}/mine.py:level"]
    message = refusal(plan_of, rewards=reward)
    assert "reward 'level' needs the column difficulty, but embedded (mixed, data_seed 0, train), row 1 has:" in message
    assert message.endswith("Add it to the rows; in a function of yours, a parameter with a default may be missing.")
    rows = problems(20, difficulty="easy")
    del rows[7]["difficulty"]
    message = refusal(plan_of, rewards=reward, dataset=write_rows(tmp_path / "rows.jsonl", rows))
    assert "rows.jsonl, line 8 has:" in message


def test_a_warm_up_without_worked_answers_is_refused(plan_of: MakePlan, tmp_path: Path) -> None:
    rows = [{"question": f"What is {n}?", "answer": str(n)} for n in range(20)]
    file = write_rows(tmp_path / "rows.jsonl", rows)
    assert "--warmup-steps needs worked answers" in refusal(plan_of, dataset=file, train={"warmup_steps": 2})


def test_no_evaluation_reads_no_held_out_rows(plan_of: MakePlan) -> None:
    assert plan_of(evaluation={"size": 0}).envs[0].held_out == ()


def test_naming_a_model_moves_to_the_hub_and_a_dataset_of_the_users_own_wins(host: Host) -> None:
    def chosen(env: str = "gsm8k", **settings: str) -> Any:
        return with_dataset(host.env(env), parse_config({"env": env, **settings})).options.get("dataset")

    assert chosen() in (None, "embedded")
    assert chosen(model="org/model") == "openai/gsm8k"
    assert chosen(model="org/model", dataset="rows.jsonl") == "rows.jsonl"
    assert chosen("gsm8k:dataset=rows.jsonl", model="org/model") == "rows.jsonl"
    assert chosen("gsm8k:dataset=embedded", model="org/model") == "embedded"
    assert chosen(dataset="rows.jsonl") == "rows.jsonl"


def test_a_dataset_for_an_environment_that_takes_none_is_refused() -> None:
    env = BoundEnv(EnvSpec(name="bare", version=1, factory=Adding), "some-dist")
    with pytest.raises(UsageError, match="env 'bare' has no option 'dataset'"):
        with_dataset(env, parse_config({"env": "bare", "dataset": "rows.jsonl"}))


@pytest.mark.slow
def test_problems_that_an_environment_makes_are_the_same_in_a_resumed_run(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(REWARDS.replace("difficulty: str", ""))
    tree: dict[str, Any] = {"env": "endless", "rewards": [f"{tmp_path}/mine.py:level"], "model": str(tiny_model)}
    tree |= {"rollout": {"max_completion_length": 8}}
    host = Host([*installed_entries(), Entry("endless-dist", "1.0", "endless", Endless)])
    for train in ({"prompts_per_step": 7}, {"prompts_per_step": 32, "epochs": 0.1}, {"limit": 5}):
        plan = make_plan(parse_config(tree | {"train": train}), host)
        again = make_plan(parse_config(plan.config.model_dump(mode="json")), host, fresh=False)
        assert again.train == plan.train
        assert again.config == plan.config


def test_a_plan_of_a_planned_configuration_changes_nothing(plan_of: MakePlan, host: Host) -> None:
    plan = plan_of(lora={"enabled": True}, loss={"num_iterations": 2}, train={"epochs": 2})
    again = make_plan(parse_config(json.loads(json.dumps(plan.config.model_dump(mode="json")))), host, fresh=False)
    assert again == plan


@pytest.mark.parametrize("kind", ["a file", "not empty", "below a file"])
def test_a_run_directory_that_cannot_be_new_is_refused(kind: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    folder = {"a file": tmp_path / "file", "not empty": tmp_path, "below a file": tmp_path / "file" / "run"}[kind]
    with pytest.raises(UsageError, match=r"is a file|is not empty|cannot write in|Not a directory"):
        refuse_unwritable(folder)
    assert (tmp_path / "file").read_text() == "mine"
    (tmp_path / "empty").mkdir()
    refuse_unwritable(tmp_path / "empty")
    refuse_unwritable(tmp_path / "deep" / "er" / "run")


@pytest.mark.slow
def test_a_disk_too_full_is_refused_with_both_sizes(tmp_path: Path, plan_of: MakePlan) -> None:
    free = shutil.disk_usage(tmp_path).free
    refuse_full_disk(tmp_path / "new", free // 2)
    with pytest.raises(UsageError, match=r"need about .* GiB, but .* has .* free.*--out.*--lora"):
        refuse_full_disk(tmp_path / "new", free * 2 + 2**31)
    full, kept = plan_of().disk_bytes, plan_of(output={"keep": 5}).disk_bytes
    assert full > 3 * plan_of().parameters * 12, "two kept checkpoints and the one being written, with Adam's moments"
    assert kept > full
    assert plan_of(lora={"enabled": True}).disk_bytes < full / 2


def test_a_tokenizer_of_another_model_is_refused(plan_of: MakePlan, tiny_model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny_model, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"vocab_size": 300}))
    assert "but the model knows only 300" in refusal(plan_of, model=str(folder))


def test_adapters_for_modules_that_are_not_there_are_refused(plan_of: MakePlan) -> None:
    message = refusal(plan_of, lora={"enabled": True, "targets": ["q_proj", "v_prj"]})
    assert "the model has no module 'v_prj'. Did you mean 'v_proj'?" in message
    assert plan_of(lora={"enabled": True, "targets": ["q_proj", "v_proj"]})


@pytest.mark.parametrize(
    ("targets", "problem"),
    [
        (["q_proj", ""], "the model has no module ''"),
        ([], "names no module"),
        (["lm_head"], "'lm_head' is the output layer, where TRL trains no adapter"),
        (["layers"], "'layers' is a ModuleList and holds no matrix"),
        (["input_layernorm"], "'input_layernorm' is a Qwen2RMSNorm and holds no matrix"),
    ],
)
def test_adapters_where_none_can_be_are_refused_before_weights_load(
    plan_of: MakePlan, tiny_model: Path, targets: list[str], problem: str
) -> None:
    assert problem in refusal(plan_of, model=str(tiny_model), lora={"enabled": True, "targets": targets})


def test_a_chat_template_that_shows_no_message_is_refused(plan_of: MakePlan, tiny_model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny_model, folder)
    (folder / "chat_template.jinja").write_text("<|im_start|>assistant\n")
    assert "shows the policy nothing of their messages" in refusal(plan_of, model=str(folder))


def test_a_rising_schedule_reaches_the_trainer_in_order(plan_of: MakePlan) -> None:
    plan = plan_of(env="arithmetic:schedule=rising,size=32", dataset=None)
    levels = [plan.train[number].row["level"] for number in run_order(plan)]
    assert levels == sorted(levels)
    assert (levels[0], levels[-1]) == (1, 5)


def test_the_context_is_the_models_own(plan_of: MakePlan, tiny_model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny_model, folder)
    config = json.loads((folder / "config.json").read_text())
    config["max_position_embeddings"] = 160
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(DatasetError, match="context of 160"):
        plan_of(model=str(folder))


def test_float16_is_for_adapters_only(plan_of: MakePlan) -> None:
    assert "too small for float16" in refusal(plan_of, train={"dtype": "float16"})
    assert plan_of(train={"dtype": "float16"}, lora={"enabled": True})


def test_a_reward_of_a_file_needs_no_version(plan_of: MakePlan, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(REWARDS.replace("version=1, ", "").replace("difficulty", "answer"))
    assert plan_of(rewards=["./mine.py:level"]).notes == plan_of().notes


def test_a_reward_of_groups_is_refused_where_a_process_would_have_a_part_of_a_group(
    plan_of: MakePlan, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from grpo import reward\n@reward(version=1, scope='group')\n"
        "def mine(completions: list[str]) -> list[float]:\n    return [1.0] * len(completions)\n",
        encoding="utf-8",
    )
    monkeypatch.setenv("WORLD_SIZE", "2")
    message = refusal(plan_of, rewards=[f"{file}:mine"], train={"prompts_per_step": 3, "group_size": 4})
    assert "'mine' scores the completions of a prompt together, and 2 processes that share 3 prompts" in message
    assert "multiple of 2, for example 4" in message
    assert plan_of(rewards=[f"{file}:mine"], train={"prompts_per_step": 4, "group_size": 4}).processes == 2
