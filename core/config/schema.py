"""The run's configuration: a TOML file, `--set` pairs and flags in; one frozen, checked `RunConfig` out.

Every value that can be wrong on its own is refused here, before anything is loaded. What depends on other things
(a plugin's options, the model's context) is refused by core/planning.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from grpo.core.config.errors import complaint, setting_at
from grpo.plugins.errors import UsageError

LossName = Literal["grpo", "bnpo", "dr_grpo", "dapo", "cispo", "gspo"]
Correction = Literal["none", "token_truncate", "token_mask", "sequence_truncate", "sequence_mask"]
Dtype = Literal["float32", "bfloat16", "float16"]
PluginRef = str | dict[str, Any]
Share = Annotated[float, Field(ge=0.0, le=1.0)]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _no_truth_for_a_number(cls, given: Any) -> Any:
        for name, value in given.items() if isinstance(given, Mapping) else ():
            field = cls.model_fields.get(name)
            if isinstance(value, bool) and field is not None and "bool" not in str(field.annotation):
                raise ValueError(f"{name} is not a setting that is true or false")
        return given


class TrainSection(_Section):
    """How long and how fast. Sizes are in completions, rates per optimizer step.

    Attributes:
        steps: optimizer steps; None: `epochs` over the rows, or a default for the embedded model.
        epochs: passes over the training rows; used when `steps` is None.
        limit: use only the first N training rows.
        group_size: completions per prompt (G in the GRPO paper).
        prompts_per_step: prompts per generation, over all processes.
        micro_batch_size: completions per forward and backward pass and process; None: chosen.
        lr: learning rate; None: chosen by full or LoRA training.
        lr_schedule: the name of a transformers schedule.
        lr_warmup_steps: steps over which the learning rate rises from 0.
        warmup_steps: supervised steps on the environment's worked answers before GRPO.
        warmup_lr: their learning rate; None: chosen by full or LoRA training.
        checkpointing: which activations are kept (core/train/offload.py); auto: the fastest that fits.
        check_memory: refuse a run that this machine's memory cannot hold.
        share_prompts: compute a prompt once for its completions, and rows without padding, where the model allows it.
        head: who computes log-probabilities and the loss: grpo without logits, or TRL as it comes, to compare.
        dtype: of the weights; None: bfloat16 for a named model on a GPU, else float32 (core/train/adamw.py).
    """

    steps: Annotated[int, Field(ge=1)] | None = None
    epochs: Annotated[float, Field(gt=0)] | None = None
    limit: Annotated[int, Field(ge=1)] | None = None
    group_size: Annotated[int, Field(ge=2)] = 8
    prompts_per_step: Annotated[int, Field(ge=1)] = 8
    micro_batch_size: Annotated[int, Field(ge=1)] | None = None
    lr: Annotated[float, Field(gt=0)] | None = None
    lr_schedule: Literal["constant", "constant_with_warmup", "linear", "cosine"] = "constant_with_warmup"
    lr_warmup_steps: Annotated[int, Field(ge=0)] = 5
    adam_beta1: Annotated[float, Field(ge=0, lt=1)] = 0.9
    adam_beta2: Annotated[float, Field(ge=0, lt=1)] = 0.99
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    max_grad_norm: Annotated[float, Field(gt=0)] = 1.0
    warmup_steps: Annotated[int, Field(ge=0)] = 0
    warmup_lr: Annotated[float, Field(gt=0)] | None = None
    checkpointing: Literal["none", "full", "offload", "auto"] = "auto"
    check_memory: bool = True
    share_prompts: bool = True
    head: Literal["grpo", "trl"] = "grpo"
    dtype: Dtype | None = None


class LossSection(_Section):
    """The objective; the names are the field's.

    Attributes:
        type: how token losses are averaged (GRPO, arXiv 2402.03300; Dr. GRPO, 2503.20783; DAPO, 2503.14476), and for
            cispo (2506.13585) and gspo (2507.18071) also what they are.
        epsilon, epsilon_high: lower and upper clip range of the probability ratio; None: the same. For cispo,
            epsilon_high is the largest weight of a token.
        delta: upper bound of the ratio in the two-sided clip (INTELLECT-2), or None.
        beta: weight of the KL divergence from the reference policy; 0 loads no reference.
        mask_truncated_completions: leave completions that hit the length limit out of the loss; also rollouts that a
            budget of turns or tokens ended.
        scale_rewards: divide advantages by the standard deviation of the group, of the batch, or not at all.
        num_iterations: optimizer passes over each generated batch (mu in the GRPO paper).
        importance_sampling_level: ratio per token, or per sequence; None: chosen by `type`.
        rollout_correction: how to weigh tokens that the rollout engine and the policy find differently probable;
            None: token_truncate where vLLM samples and our head trains, else none.
        rollout_correction_cap: their largest weight.
    """

    type: LossName = "dapo"
    epsilon: Annotated[float, Field(gt=0)] = 0.2
    epsilon_high: Annotated[float, Field(gt=0)] | None = None
    delta: Annotated[float, Field(gt=0)] | None = None
    beta: Annotated[float, Field(ge=0)] = 0.0
    mask_truncated_completions: bool = False
    scale_rewards: Literal["group", "batch", "none"] = "group"
    num_iterations: Annotated[int, Field(ge=1)] = 1
    importance_sampling_level: Literal["token", "sequence"] | None = None
    rollout_correction: Correction | None = None
    rollout_correction_cap: Annotated[float, Field(ge=1)] = 2.0

    @property
    def level(self) -> Literal["token", "sequence"]:
        """Where the probability ratio is taken."""
        return self.importance_sampling_level or ("sequence" if self.type == "gspo" else "token")

    @model_validator(mode="after")
    def _settings_of_cispo_and_gspo(self) -> LossSection:
        if self.type == "cispo" and (self.epsilon_high is None or self.level == "sequence" or self.delta is not None):
            raise ValueError(
                "cispo needs epsilon_high, the largest weight of a token (for example 5), and neither "
                "delta nor a ratio per sequence"
            )
        if self.type == "gspo" and self.level == "token":
            raise ValueError("gspo takes its ratio per sequence: leave importance_sampling_level out, or use grpo")
        return self

    @model_validator(mode="after")
    def _delta_above_the_clip(self) -> LossSection:
        high = self.epsilon if self.epsilon_high is None else self.epsilon_high
        if self.delta is not None and self.delta <= 1 + high:
            raise ValueError(f"delta {self.delta} must be above 1 + epsilon_high = {1 + high}, or it clips first")
        return self


class RolloutSection(_Section):
    """How completions are sampled; lengths in tokens.

    Attributes:
        backend: the training model itself (hf), or vLLM in this process or behind a server.
        server_url: where that server listens; several with commas between them share the prompts.
        server_wait: seconds to wait for it when it is gone in the middle of a run.
        lora_sync: hand an adapter to the engine alone, folded into the weights, or whichever is faster.
        memory_share: of a GPU's memory, for the engine's weights and cache.
        tolerance: mean difference of log-probabilities, in nats, that is still rounding; None: by the data type.
        overlap: sample the next batch while the policy trains on the present one; rollouts are one step old then.
        share_weights: one copy of the frozen weights for the adapter's training and for vLLM in this process.
        sleep: the engine gives its memory up between rollouts; None: where there is a GPU.
        max_prompt_length: a longer prompt is an error that names its row; None: whatever fits the context.
        max_completion_length: where a completion is cut; None: chosen.
        batch_size: prompts times group members decoded at once and process; None: all.
        max_turns: how often the policy may speak in an environment of several turns; None: as often as that allows.
        max_rollout_length: tokens after the prompt, sampled and observed, over all turns; None: 256 between turns.
        step_timeout: seconds for one call of an environment.
    """

    backend: Literal["hf", "vllm", "vllm-server"] = "hf"
    server_url: str = "http://127.0.0.1:8271"
    server_wait: Annotated[float, Field(ge=0)] = 300.0
    lora_sync: Literal["adapter", "folded", "auto"] = "auto"
    memory_share: Annotated[float, Field(gt=0, lt=1)] = 0.3
    tolerance: Annotated[float, Field(gt=0)] | None = None
    overlap: bool = False
    share_weights: bool = False
    sleep: bool | None = None
    temperature: Annotated[float, Field(gt=0)] = 1.0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    top_k: Annotated[int, Field(ge=0)] = 0
    min_p: Annotated[float, Field(ge=0, lt=1)] = 0.0
    max_prompt_length: Annotated[int, Field(ge=1)] | None = None
    max_completion_length: Annotated[int, Field(ge=1)] | None = None
    batch_size: Annotated[int, Field(ge=1)] | None = None
    max_turns: Annotated[int, Field(ge=1)] | None = None
    max_rollout_length: Annotated[int, Field(ge=1)] | None = None
    step_timeout: Annotated[float, Field(gt=0)] = 60.0


class LoraSection(_Section):
    """A low-rank adapter instead of full fine-tuning.

    Attributes:
        rank, alpha: r and alpha of LoRA (arXiv 2106.09685); alpha None: twice the rank.
        targets: names of the modules to adapt, or "all-linear".
        bits: 4 quantises the frozen weights (QLoRA); needs bitsandbytes and an NVIDIA GPU.
    """

    enabled: bool = False
    rank: Annotated[int, Field(ge=1)] = 16
    alpha: Annotated[float, Field(gt=0)] | None = None
    targets: tuple[str, ...] | Literal["all-linear"] = "all-linear"
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    bits: Literal[4] | None = None

    @model_validator(mode="after")
    def _settings_of_an_adapter_that_is_off(self) -> LoraSection:
        fields = type(self).model_fields
        idle = [name for name, field in fields.items() if getattr(self, name) != field.default]
        if idle and not self.enabled:
            raise ValueError(f"{', '.join(idle)} would do nothing without an adapter. Add --lora (lora.enabled=true)")
        return self


class EvaluationSection(_Section):
    """Held-out accuracy by greedy decoding: before, after, and every `every` steps (0: not during training)."""

    every: Annotated[int, Field(ge=0)] = 20
    size: Annotated[int, Field(ge=0)] = 200


class OutputSection(_Section):
    """What is written and when.

    Attributes:
        save_every: steps between checkpoints, a multiple of num_iterations; None: about 20. At most this many are
            redone after a crash.
        keep: how many checkpoints stay on disk (at least 2, so that one is always whole).
        report_to: trackers that also receive the metrics.
    """

    save_every: Annotated[int, Field(ge=1)] | None = None
    keep: Annotated[int, Field(ge=2)] = 2
    report_to: tuple[Literal["wandb", "tensorboard", "trackio"], ...] = ()


class FailureSection(_Section):
    """When failing rewards stop the run: the share of one step's completions that one reward failed to score."""

    stop_share: Share = 0.2
    retries: Annotated[int, Field(ge=0)] = 2


class CanarySection(_Section):
    """Known completions that are scored beside the training batches, outside the loss.

    Attributes:
        file: JSONL with a completion, its columns and what each reward should score; see docs/scoring.md.
        cases: take the cases that rewards and the verifier declare, too.
        every: batches from one look at them to the next.
        tolerance: how far a score may be from what is expected.
        share: the share of a plugin's canaries that may fail or drift before that is a warning.
        patience: how many looks in a row a plugin may be wrong; the next one stops the run.
    """

    file: Path | None = None
    cases: bool = False
    every: Annotated[int, Field(ge=1)] = 1
    tolerance: Annotated[float, Field(ge=0)] = 1e-6
    share: Share = 0.0
    patience: Annotated[int, Field(ge=1)] = 2


class RunConfig(_Section):
    """Everything a run depends on, apart from the machine.

    Attributes:
        env: the environment's SPEC, or a table with the key `name`; a list of these for several environments.
        rewards: SPECs or tables; empty: each environment's defaults.
        env_rewards: an environment's name to the SPECs or tables of its own rewards.
        model: a hub id or a folder; None: the embedded model.
        dataset: the value of the environment's option `dataset`.
        out: the run directory; None: runs/<time>-<env>.
    """

    env: PluginRef | Annotated[tuple[PluginRef, ...], Field(min_length=1)]
    rewards: tuple[PluginRef, ...] = ()
    env_rewards: dict[str, Annotated[tuple[PluginRef, ...], Field(min_length=1)]] = {}
    model: str | None = None
    dataset: str | None = None
    out: Path | None = None
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    train: TrainSection = TrainSection()
    loss: LossSection = LossSection()
    rollout: RolloutSection = RolloutSection()
    lora: LoraSection = LoraSection()
    evaluation: EvaluationSection = EvaluationSection()
    output: OutputSection = OutputSection()
    failures: FailureSection = FailureSection()
    canaries: CanarySection = CanarySection()

    @property
    def envs(self) -> tuple[PluginRef, ...]:
        """The environments."""
        return self.env if isinstance(self.env, tuple) else (self.env,)

    @model_validator(mode="after")
    def _settings_that_trl_does_not_have(self) -> RunConfig:
        if self.train.head == "trl" and self.loss.rollout_correction not in (None, "none"):
            raise ValueError("loss.rollout_correction is computed by our head only: leave train.head='trl' out")
        return self


def load_config(file: Path | None, pairs: Sequence[str], flags: Mapping[str, Any]) -> RunConfig:
    """Merges a file, `--set` pairs and flags (later ones win) into a checked configuration.

    Args:
        file: TOML, or the config.json of an earlier run.
        pairs: "a.b=value"; the value is TOML, or bare text.
        flags: dotted key to value; None values are left out.

    Raises:
        UsageError: an unreadable file, an unknown key, or a value out of range; names the key.
    """
    tree: dict[str, Any] = _read(file) if file else {}
    for pair in pairs:
        key, separator, text = pair.partition("=")
        if not separator or not key:
            raise UsageError(f"--set {pair}: write it as key=value, for example --set loss.beta=0.04")
        _put(tree, key.strip(), _value(text.strip()))
    for key, value in flags.items():
        if value is not None:
            _put(tree, key, value)
    return parse_config(tree)


def parse_config(tree: Mapping[str, Any]) -> RunConfig:
    """Checks a nested mapping.

    Raises:
        UsageError: an unknown key or a value out of range; names the key.
    """
    if not tree.get("env"):
        raise UsageError("no environment. Name one with --env, for example --env gsm8k. List them with: grpo plugins")
    try:
        return RunConfig.model_validate(tree)
    except ValidationError as error:
        explained: dict[str, str] = {}  # the first complaint about each setting
        for line in error.errors():
            explained.setdefault(setting_at(line["loc"], RunConfig), complaint(line, RunConfig))
        raise UsageError("; ".join(list(explained.values())[:3])) from None


def _read(file: Path) -> dict[str, Any]:
    try:
        text = file.read_text(encoding="utf-8")
        tree = json.loads(text) if file.suffix == ".json" else tomllib.loads(text)
    except OSError as error:
        raise UsageError(f"cannot read the configuration {file}: {error.strerror}") from None
    except (ValueError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} is not valid {'JSON' if file.suffix == '.json' else 'TOML'}: {error}") from None
    if not isinstance(tree, dict):
        raise UsageError(f"{file} must hold a table of settings, not {type(tree).__name__}")
    return tree


def _value(text: str) -> Any:
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
