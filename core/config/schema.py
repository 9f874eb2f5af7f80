"""Merges a TOML file, `--set` pairs and flags into a frozen `RunConfig`; refuses values that are wrong alone."""

import difflib
import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, Field, ValidationError, field_validator, model_validator

from grpo.core.config.sections import (
    CanarySection,
    EvaluationSection,
    FailureSection,
    LoraSection,
    LossSection,
    OutputSection,
    RolloutSection,
    TrainSection,
)
from grpo.core.config.setting import About, Flag, PluginRef, Section, Setting, setting, settings_of
from grpo.plugins.errors import UsageError, did_you_mean

_CLOSE = 0.7  # of the letters of two names
# What other trainers (TRL, verl, Unsloth, OpenRLHF) call a setting.
_ELSEWHERE = {
    "train.group_size": "num_generations n group_n rollout_n n_samples_per_prompt",
    "train.prompts_per_step": "train_batch_size rollout_batch_size",
    "train.micro_batch_size": "per_device_train_batch_size gradient_accumulation_steps batch_size micro_batch",
    "train.steps": "max_steps total_training_steps",
    "train.epochs": "num_train_epochs total_epochs num_epochs",
    "train.lr": "learning_rate",
    "train.lr_schedule": "lr_scheduler_type",
    "train.lr_warmup_steps": "warmup_ratio warmup_steps_ratio",
    "train.checkpointing": "gradient_checkpointing use_gradient_checkpointing",
    "train.max_grad_norm": "grad_clip clip_grad max_norm",
    "loss.type": "loss_type loss_fn",
    "loss.advantage": "scale_rewards adv_estimator advantage_estimator",
    "loss.beta": "kl kl_coef kl_loss_coef init_kl_coef kl_beta",
    "rollout.backend": "use_vllm vllm_mode",
    "rollout.server_url": "vllm_server_base_url vllm_server_host",
    "rollout.memory_share": "vllm_gpu_memory_utilization gpu_memory_utilization",
    "rollout.max_completion_length": "max_new_tokens max_response_length generate_max_len max_tokens",
    "rollout.dynamic": "dynamic_sampling filter_groups",
    "rollout.max_turns": "max_tool_calling_iterations",
    "lora.enabled": "use_peft use_lora",
    "lora.rank": "lora_r r lora_rank",
    "lora.targets": "target_modules lora_target_modules",
    "evaluation.every": "eval_steps test_freq",
    "output.save_every": "save_steps save_freq",
    "output.keep": "save_total_limit",
}


class RunConfig(Section):
    """Everything a run depends on, apart from the machine."""

    env: Annotated[
        PluginRef | Annotated[tuple[PluginRef, ...], Field(min_length=1)],
        About(
            "Environment, for example gsm8k.",
            "Several: see [environments.md](environments.md#several-environments-in-one-run).",
            kind="SPEC or table, or a list of them",
            flag=Flag("--env", "SPEC", "each"),
        ),
    ]
    rewards: tuple[PluginRef, ...] = setting(
        (),
        "Reward, for example proximity.",
        "An empty list: the environment's.",
        kind="list of SPECs or tables",
        flag=Flag("--reward", "SPEC", "each"),
    )
    env_rewards: dict[str, Annotated[tuple[PluginRef, ...], Field(min_length=1)]] = setting(
        {},
        "Reward of one environment of several.",
        kind="table of lists",
        flag=Flag("--env-reward", "ENV SPEC", "pairs"),
    )
    verifier: PluginRef | None = setting(
        None,
        "Verifier, which decides accuracy.",
        "Judges the environments whose rows have its columns.",
        left_out="the environment's",
        kind="SPEC or table",
        flag=Flag("--verifier", "SPEC"),
    )
    sampler: PluginRef | None = setting(
        None,
        "Sampler of the prompts of a step, for example curriculum.",
        "See [rollouts.md](rollouts.md#curriculum).",
        left_out="a fixed order: shuffled, or the rows' own",
        kind="SPEC or table",
        flag=Flag("--sampler", "SPEC"),
    )
    agent: PluginRef | None = setting(
        None,
        "Agent program that answers the environment's tasks, for example cmd:'my-agent {instruction}'.",
        "See [agents.md](agents.md).",
        left_out="the policy answers itself",
        kind="SPEC or table",
        flag=Flag("--agent", "SPEC"),
    )
    session: str | None = setting(
        None,
        "Session in which episodes run, for environments that have one: local, docker or a plugin.",
        "See [sessions.md](sessions.md).",
        left_out="the environment's",
        flag=Flag("--session", "SPEC"),
    )
    model: str | None = setting(
        None,
        "Policy to train: a hub id, a folder, or a run.",
        left_out="the embedded model",
        flag=Flag("--model", "NAME", panel="model"),
    )
    chat_template_kwargs: dict[str, bool | int | float | str] = setting(
        {},
        "Variables of the chat template, for example enable_thinking=false.",
        "Evaluation and exported models keep them.",
        kind="table",
        flag=Flag("--chat-template-kwargs", "NAME=VALUE", "table", panel="model"),
    )
    dataset: str | None = setting(
        None,
        "Rows for the environment: a file or a hub dataset.",
        left_out="the environment's; its hub rows with `--model`",
        flag=Flag("--dataset", "FILE|ID"),
    )
    out: Path | None = setting(
        None, "Run directory, new or empty.", left_out="`runs/TIME-ENV`", flag=Flag("--out", panel="output")
    )
    seed: Annotated[int, Field(ge=0, lt=2**32)] = setting(
        0, "Seed of the row order, the sampling and a new adapter.", flag=Flag("--seed", panel="train")
    )
    train: TrainSection = Field(default_factory=TrainSection)
    loss: LossSection = Field(default_factory=LossSection)
    rollout: RolloutSection = Field(default_factory=RolloutSection)
    lora: LoraSection = Field(default_factory=LoraSection)
    evaluation: EvaluationSection = Field(default_factory=EvaluationSection)
    output: OutputSection = Field(default_factory=OutputSection)
    failures: FailureSection = Field(default_factory=FailureSection)
    canaries: CanarySection = Field(default_factory=CanarySection)

    @property
    def envs(self) -> tuple[PluginRef, ...]:
        return self.env if isinstance(self.env, tuple) else (self.env,)

    @field_validator("chat_template_kwargs", mode="before")
    @classmethod
    def _truth_as_python_writes_it(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        truth = {"True": True, "False": False}  # as text both would be true to a template
        return {name: truth.get(value, value) if isinstance(value, str) else value for name, value in given.items()}

    @model_validator(mode="after")
    def _settings_that_trl_does_not_have(self) -> Self:
        if self.train.head == "trl" and self.loss.rollout_correction not in (None, "none"):
            raise ValueError("loss.rollout_correction is computed by our head only: leave train.head='trl' out")
        return self


def load_config(
    file: Path | None, pairs: Sequence[str], flags: Mapping[str, Any], *, env_required: bool = True
) -> RunConfig:
    """Merges a file, `--set` pairs and flags (later ones win) into a checked configuration.

    `pairs`: "a.b=value"; the value is TOML, or bare text. `flags`: dotted key to value; None values are left out.
    `env_required`: else a missing `env` is "". Raises UsageError, which names the key, for an unreadable file, an
    unknown key, or a value out of range.
    """
    tree: dict[str, Any] = _read(file) if file else {}
    for pair in pairs:
        key, separator, text = pair.partition("=")
        if not separator or not key:
            name = key.strip()
            known = settings_of(RunConfig).get(name)
            value = "100" if known is not None and known.kind.startswith("int") else "VALUE"
            example = f"{name}={value}" if name else "loss.beta=0.04"
            raise UsageError(f"--set {pair}: write it as key=value, for example --set {example}")
        _put(tree, key.strip(), toml_value(text.strip()))
    for key, value in flags.items():
        if value is not None:
            _put(tree, key, value)
    return parse_config(tree if env_required else {"env": "", **tree}, env_required=env_required)


def keys_of(file: Path | None) -> set[str]:
    """Returns the dotted keys of the settings in a file; none without one. Raises UsageError."""
    tree = {} if file is None else _read(file)
    return set(tree) | {f"{name}.{key}" for name, own in tree.items() if isinstance(own, Mapping) for key in own}


def parse_config(tree: Mapping[str, Any], *, env_required: bool = True) -> RunConfig:
    """Checks a nested mapping; a data set without an environment is one of `rows`. UsageError names the key."""
    if env_required and not tree.get("env"):
        if tree.get("dataset") in (None, "", "embedded"):
            raise UsageError(
                "no environment. Name one with --env, for example --env gsm8k, or rows of your own with --dataset. "
                "List the environments with: grpo plugins"
            )
        tree = {**tree, "env": "rows"}
    try:
        return RunConfig.model_validate(tree)
    except ValidationError as error:
        explained: dict[str, str] = {}  # the first complaint about each setting
        for line in error.errors():
            explained.setdefault(setting_at(line["loc"], RunConfig), complaint(line, RunConfig))
        raise UsageError("; ".join(list(explained.values())[:3])) from None


def _read(file: Path) -> dict[str, Any]:
    if file.suffix in (".yaml", ".yml"):
        raise UsageError(f"{file}: a configuration is a TOML file, or JSON in a file named *.json, and not YAML")
    try:
        text = file.read_text(encoding="utf-8")
        tree = json.loads(text) if file.suffix == ".json" else tomllib.loads(text)
    except OSError as error:
        raise UsageError(f"cannot read the configuration {file}: {error.strerror}. Name a TOML file.") from None
    except (ValueError, UnicodeDecodeError) as error:
        kind = "JSON" if file.suffix == ".json" else "TOML"
        hint = 'Texts need quotes, as in env = "gsm8k"' if "Invalid value" in str(error) else "Correct it there"
        raise UsageError(f"{file} is not valid {kind}: {error}. {hint}.") from None
    if not isinstance(tree, dict):
        raise UsageError(f"{file} must hold a table of settings, not {type(tree).__name__}")
    return tree


def toml_value(text: str) -> Any:
    """Returns the TOML value that a text spells, or the bare text."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _put(tree: dict[str, Any], key: str, value: Any) -> None:
    *path, last = key.split(".")
    for part in path:
        tree = tree.setdefault(part, {})
        if not isinstance(tree, dict):
            raise UsageError(f"--set {key}: '{part}' is a value, not a section")
    tree[last] = value


_PARSED = ("int_parsing", "int_from_float", "float_parsing", "bool_parsing")


def complaint(line: Any, root: type[BaseModel]) -> str:
    where = setting_at(line["loc"], root)
    if line["type"] == "extra_forbidden":
        settings = settings_of(root)
        if isinstance(line["input"], Mapping):  # a misspelt section
            meant = did_you_mean(where, sorted({key.rpartition(".")[0] for key in settings} - {""}))
        else:
            meant = _meant(where, settings)
        return f"unknown setting '{where}'.{meant} See docs/configuration.md for all of them"
    message = line["msg"].removeprefix("Value error, ")
    message = message.replace("valid tuple", "list").partition(" or instance of ")[0].replace("dictionary", "table")
    message = re.sub(r"not a valid path for <class '[\w.]+'>", "not a path", message)
    if line["type"] in _PARSED:  # what follows is about parsing
        message = message.partition(", ")[0]
    shown = "" if line["type"] == "value_error" else f", not {line['input']!r}"
    if line["type"] in ("tuple_type", "list_type") and isinstance(line["input"], str):
        texts = [line["input"]] if ":" in line["input"] else line["input"].split(",")
        shown += f". Write {json.dumps([text.strip() for text in texts], ensure_ascii=False)}"
    if line["type"] == "value_error" and message.startswith(f"{where}."):  # of a section; it names the settings
        return message
    return f"{where or 'configuration'}: {message[0].lower()}{message[1:]}{shown}"


def _meant(where: str, settings: Mapping[str, Setting]) -> str:
    section, _, name = where.rpartition(".")
    elsewhere = named_elsewhere(name)
    if elsewhere:
        return f" Did you mean '{elsewhere}'?"
    matcher = difflib.SequenceMatcher(b=_letters(name))
    ratios: dict[str, float] = {}
    for key, known in settings.items():
        description = re.split(r"[.,;:(]", known.about.text)[0]
        flags = known.about.flag.name.split("/") if known.about.flag else []
        for text in (key.rpartition(".")[2], description, *flags):
            matcher.set_seq1(_letters(text))
            ratios[key] = max(ratios.get(key, 0.0), matcher.ratio())
    best = max(ratios, key=lambda key: (ratios[key], key.rpartition(".")[0] == section))
    return f" Did you mean '{best}'?" if ratios[best] >= _CLOSE else ""


def named_elsewhere(name: str) -> str | None:
    """Returns the setting that other trainers call by a name; None where none does."""
    called = (key for key, names in _ELSEWHERE.items() if _letters(name) in map(_letters, names.split()))
    return next(called, None)


def _letters(text: str) -> str:
    return re.sub("[^a-z]", "", text.lower())


def setting_at(location: Sequence[str | int], root: type[BaseModel]) -> str:
    """Joins a location; leaves out what pydantic adds to it for the alternatives of a type."""
    parts: list[str] = []
    section: Any = root
    for part in location:
        if section is None and isinstance(part, str):
            break
        parts.append(str(part))
        field = section.model_fields.get(part) if section is not None else None
        inner = field.annotation if field is not None else None
        section = inner if isinstance(inner, type) and issubclass(inner, BaseModel) else None
    return ".".join(parts)
