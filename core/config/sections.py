"""Declares the settings of all sections once, from which flags, docs/configuration.md and the JSON schema are made."""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from grpo.core.config import defaults
from grpo.core.config.defaults import Dtype
from grpo.core.config.setting import (
    AtLeastOne,
    BelowOne,
    Count,
    Flag,
    NotNegative,
    PluginRef,
    Positive,
    Rate,
    Section,
    Share,
    setting,
)

WeightSync = Literal["delta", "everything", "broadcast"]
Correction = Literal[
    "none", "token_truncate", "token_mask", "sequence_truncate", "sequence_mask", "geometric_truncate", "geometric_mask"
]


class TrainSection(Section):
    """How long and how fast. Sizes are in completions, rates per optimizer step."""

    steps: AtLeastOne | None = setting(
        None,
        "Optimizer steps.",
        "Overrides `epochs`.",
        left_out=f"{defaults.EMBEDDED_STEPS} for the embedded model, else from `epochs`",
        flag="--steps",
    )
    epochs: Positive | None = setting(
        None,
        "Passes over the training rows, instead of `steps`.",
        left_out=f"{defaults.EPOCHS:g}, without `steps`",
        flag="--epochs",
    )
    limit: AtLeastOne | None = setting(
        None,
        "Use only the first N training rows.",
        "For an environment that generates problems, how many it generates.",
        left_out=f"all rows; generated problems: as many as the steps need, at least {defaults.MADE_EPISODES}",
        flag="--limit",
    )
    group_size: Annotated[int, Field(ge=2)] = setting(
        8, "Completions per prompt.", "G in the GRPO paper.", flag="--group-size"
    )
    prompts_per_step: AtLeastOne = setting(
        8,
        "Prompts per step, over all processes.",
        "`prompts_per_step * group_size` must be a multiple of the number of processes.",
        flag="--prompts-per-step",
    )
    micro_batch_size: AtLeastOne | None = setting(
        None,
        "Completions per forward and backward pass of a process.",
        "Divides each process's share. Changes memory and speed only.",
        left_out=f"up to {defaults.NAMED_MICRO_BATCH}, more within {defaults.SHORT_MICRO_TOKENS:,} tokens; all for the "
        f"embedded model; multi-turn: {defaults.ROLLOUT_MICRO_TOKENS:,} tokens",
        flag=Flag("--micro-batch-size", panel="machine"),
    )
    lr: Rate | None = setting(
        None,
        "Learning rate.",
        left_out=f"{defaults.DEFAULT_LR['named']:g}, {defaults.DEFAULT_LR['embedded']:g} for the embedded model; "
        f"{defaults.LORA_LR_FACTOR:g} times as much with LoRA",
        flag="--lr",
    )
    lr_schedule: Literal["constant", "constant_with_warmup", "linear", "cosine"] = setting(
        "constant_with_warmup", "Learning-rate schedule after the warm-up."
    )
    lr_warmup_steps: Count = setting(5, "Warm-up steps of the learning rate; the first has 1 / (N + 1) of it.")
    adam_beta1: BelowOne = setting(0.9, "Adam's beta1.")
    adam_beta2: BelowOne = setting(0.99, "Adam's beta2.")
    weight_decay: NotNegative = setting(0.0, "Decoupled weight decay.")
    max_grad_norm: Positive = setting(1.0, "Gradient norm clipping.")
    warmup_steps: Count = setting(
        0,
        "Supervised steps on the environment's demonstrations before GRPO.",
        "For a model that never finds an answer by itself.",
        flag="--warmup-steps",
    )
    warmup_lr: Rate | None = setting(
        None, "Learning rate of the supervised steps.", left_out=f"{defaults.WARMUP_LR_FACTOR:g} times `lr`"
    )
    checkpointing: Literal["none", "full", "offload", "auto"] = setting(
        "auto",
        "Activation checkpointing:",
        "`none` keeps everything, `full` one tensor per layer, `offload` the same in host memory. `auto` takes the "
        "first that fits the GPU, and `none` on CPU.",
        flag=Flag("--checkpointing", "MODE", panel="machine"),
    )
    check_memory: bool = setting(
        True, "Refuse a run that needs more memory than this machine has.", "See [plan.md](plan.md)."
    )
    share_prompts: bool = setting(
        True, "Compute a prompt once per group and pack rows without padding, if the model allows it."
    )
    head: Literal["grpo", "trl"] = setting(
        "grpo",
        "Log-probabilities and loss:",
        "ours without logits ([kernels](kernels.md)), or TRL's. Mixture-of-experts models always use TRL's.",
    )
    dtype: Dtype | None = setting(
        None,
        "Data type of the weights.",
        "Full fine-tuning in `bfloat16` also keeps rounding errors of weights and second moments, 2 bytes each. "
        "`float16` is for adapters only.",
        left_out="`bfloat16` for a named model on a GPU, else `float32`",
        flag=Flag("--dtype", panel="model"),
    )


class LossSection(Section):
    """The policy loss and the advantage estimator."""

    type: PluginRef = setting(
        "dapo",
        "Policy loss, for example dapo:epsilon_high=0.28.",
        "See [losses.md](losses.md).",
        kind="SPEC or table",
        flag=Flag("--loss", "SPEC"),
    )
    advantage: PluginRef = setting(
        "group_mean",
        "Advantage estimator, for example rloo.",
        "See [losses.md](losses.md).",
        kind="SPEC or table",
        flag=Flag("--advantage", "SPEC"),
    )
    beta: NotNegative = setting(
        0.0, "KL coefficient against the reference policy; 0 loads no reference.", flag="--beta"
    )
    use_bias_correction_kl: bool = setting(
        True,
        "Multiply the KL term by the probability ratio, as TRL does.",
        "Its gradient is then that of the divergence (DeepSeek-V3.2, 2512.02556); without it, the GRPO paper's.",
    )
    mask_truncated_completions: bool = setting(
        False, "Exclude truncated completions, and rollouts that a budget ended, from the loss."
    )
    num_iterations: AtLeastOne = setting(1, "Optimizer steps on each generated batch (mu in the GRPO paper).")
    rollout_correction: Correction | None = setting(
        None,
        "Importance weights between the policy and the rollout engine.",
        "Per token, per completion (`sequence`) or geometric mean; weights beyond cap or floor are clipped "
        "(`truncate`) or their tokens excluded (`mask`). Not with TRL's head.",
        left_out="`token_truncate` if vLLM samples and our head trains, else `none`",
    )
    rollout_correction_cap: Annotated[float, Field(ge=1)] = setting(2.0, "Largest importance weight.")
    rollout_correction_floor: Share = setting(
        0.0,
        "Smallest importance weight; 0: no bound.",
        "IcePop (arXiv 2510.18855) is `token_mask` with floor 0.5 and cap 5.",
    )


class RolloutSection(Section):
    """How completions are sampled; lengths in tokens."""

    backend: Literal["hf", "vllm", "vllm-server"] = setting(
        "hf",
        "Rollout backend:",
        "the training model itself, vLLM in this process, or `grpo serve-rollouts`; see [vllm.md](vllm.md).",
        flag=Flag("--rollout", "BACKEND"),
    )
    server_url: str = setting(
        f"http://127.0.0.1:{defaults.SERVER_PORT}",
        "Address of `grpo serve-rollouts`; several: A,B.",
        "Several servers share the prompts of each batch.",
        kind="`http://HOST:PORT`",
        flag=Flag("--server-url", "URL"),
    )
    server_wait: NotNegative = setting(300.0, "How long to wait for a lost server.", kind="seconds")
    lora_sync: Literal["adapter", "folded", "auto"] = setting(
        "auto",
        "How an adapter is synced to vLLM:",
        "alone, merged into a copy of the weights, or whichever is faster on the first batches.",
        flag=Flag("--lora-sync", "WAY"),
    )
    weight_sync: WeightSync | None = setting(
        None,
        "What is sent to a rollout server after a step:",
        "changed values, everything, or everything by NCCL. See [vllm.md](vllm.md#what-is-synced).",
        left_out="delta for 16-bit weights, else everything",
    )
    memory_share: Annotated[float, Field(gt=0, lt=1)] = setting(
        0.3, "Share of a GPU's memory for vLLM's weights and cache."
    )
    tolerance: Positive | None = setting(
        None,
        "Largest mean difference between the log-probabilities of sampling and training, in nats.",
        "Beyond it, a vLLM step is repeated, then the run stops.",
        left_out=", ".join(f"{most:g} in {dtype}" for dtype, most in defaults.TOLERANCE.items()),
    )
    ahead: Count = setting(
        0,
        "Batches that vLLM samples ahead while the policy trains.",
        "Rollouts are then as many steps old. More than 1 needs `vllm-server`. See [vllm.md](vllm.md#batches-ahead).",
        flag=Flag("--ahead", "BATCHES"),
    )
    partial: Count = setting(
        0,
        "Most tokens that a rollout samples in one step; 0: no limit.",
        "The next step continues it. See [rollouts.md](rollouts.md#partial-rollouts).",
        flag=Flag("--partial", "TOKENS"),
    )
    refill: Count = setting(
        0, "Retries of a completion that a reward or environment failed on, in the same step.", flag="--refill"
    )
    dynamic: NotNegative = setting(
        0.0,
        "Replace zero-signal groups by other prompts, for up to TIMES the step's first tokens.",
        "See [rollouts.md](rollouts.md#dynamic-sampling).",
        flag=Flag("--dynamic", "TIMES"),
    )
    share_weights: bool = setting(
        False,
        "Share the frozen weights between LoRA training and vLLM in this process.",
        "See [vllm.md](vllm.md#one-copy-of-the-frozen-weights).",
        flag=Flag("--share-weights", panel="machine"),
    )
    sleep: bool | None = setting(None, "vLLM releases its memory between rollouts.", left_out="on a GPU")
    temperature: Positive = setting(
        1.0,
        "Sampling temperature.",
        "Used in sampling and in training. Held-out evaluation is always greedy.",
        flag="--temperature",
    )
    top_p: Annotated[float, Field(gt=0, le=1)] = setting(1.0, "Nucleus sampling.")
    top_k: Count = setting(0, "Sample from the k most probable tokens; 0: all.")
    min_p: BelowOne = setting(0.0, "Exclude tokens below this share of the most probable one.")
    max_prompt_length: AtLeastOne | None = setting(
        None,
        "Longest prompt, in tokens; a longer one is an error.",
        left_out="what fits the context",
        flag="--max-prompt-length",
    )
    max_completion_length: AtLeastOne | None = setting(
        None,
        "Longest completion, in tokens; a longer one is cut.",
        "Per turn in a multi-turn environment. Must fit the context with the longest prompt.",
        left_out=f"{defaults.NAMED_COMPLETION}, {defaults.EMBEDDED_COMPLETION} for the embedded model",
        flag="--max-completion-length",
    )
    batch_size: AtLeastOne | None = setting(None, "Completions that a process decodes at once.", left_out="all at once")
    max_turns: AtLeastOne | None = setting(
        None,
        "Most turns of a rollout; of an agent, calls.",
        left_out=f"what the environment allows; {defaults.AGENT_CALLS} calls of an agent",
    )
    max_rollout_length: AtLeastOne | None = setting(
        None,
        "Most tokens after the prompt over all turns, sampled and observed.",
        left_out=f"what fits the context, at most {defaults.OBSERVED} between two turns on average and "
        f"{defaults.ROLLOUT_TOKENS:,} in all",
    )
    agent_seconds: Positive = setting(
        300.0,
        "Time limit of an agent in one episode, without waiting for the policy.",
        kind="seconds",
        flag=Flag("--agent-seconds", panel="rollout"),
    )
    agents_at_once: AtLeastOne = setting(
        64, "Agents that run side by side in a process.", flag=Flag("--agents-at-once", panel="rollout")
    )
    agent_trains: Literal["main", "tree", "all"] = setting(
        "tree",
        "Which calls of an agent train: those of its main conversation, also those of sub-agents, or all.",
        "Only `all` includes auxiliary calls, see [agents.md](agents.md#train-with-an-agent).",
    )
    agent_window: Positive | None = setting(
        None,
        "Seconds after which waiting agents are answered though others are still busy.",
        "A run with a seed then no longer repeats exactly.",
        left_out="when all running agents wait",
        kind="seconds",
    )
    step_timeout: Positive = setting(
        60.0, "Time limit of one environment call; beyond it the rollout fails.", kind="seconds"
    )
    env_processes: Count = setting(
        0,
        "Processes that step multi-turn environments; 0: threads.",
        "See [writing-environments.md](writing-environments.md#several-turns). With `--on ray` they are spread "
        "over the nodes.",
        flag=Flag("--env-processes", panel="machine"),
    )


class LoraSection(Section):
    """A low-rank adapter instead of full fine-tuning."""

    enabled: bool = setting(
        False, "Train a low-rank adapter, or all weights.", "LoRA: arXiv 2106.09685.", flag="--lora/--full"
    )
    rank: AtLeastOne = setting(16, "Rank of the adapter.", flag="--lora-rank")
    alpha: Positive | None = setting(None, "Alpha of the adapter.", left_out="twice the rank", flag="--lora-alpha")
    targets: tuple[str, ...] | Literal["all-linear"] = setting(
        "all-linear",
        "Modules to adapt, or all linear layers.",
        kind="list of names, or `all-linear`",
        flag=Flag("--lora-targets", "A,B", "commas"),
    )
    dropout: BelowOne = setting(0.0, "Dropout of the adapter's input in training.")
    bits: Literal[4] | None = setting(
        None,
        "Quantise the frozen weights (QLoRA).",
        "Needs bitsandbytes and an NVIDIA GPU.",
        left_out="off",
        flag="--bits",
    )

    @model_validator(mode="after")
    def _settings_of_an_adapter_that_is_off(self) -> Self:
        fields = type(self).model_fields
        idle = [f"lora.{name}" for name, field in fields.items() if getattr(self, name) != field.default]
        if idle and not self.enabled:
            raise ValueError(f"{', '.join(idle)} would do nothing without an adapter. Add --lora (lora.enabled=true)")
        return self


class EvaluationSection(Section):
    """Held-out accuracy by greedy decoding: before, after, and in between."""

    every: Count = setting(20, "Steps between held-out evaluations; 0: not during training.", flag="--eval-every")
    size: Count = setting(200, "Held-out rows to evaluate on; 0: no evaluation.", flag="--eval-size")
    stop_on_alarm: bool = setting(
        False,
        "End the run if the reward-hacking alarm triggers; otherwise it is a warning.",
        "See [alarm.md](alarm.md).",
        flag="--stop-on-alarm",
    )


class OutputSection(Section):
    """What is written and when."""

    save_every: AtLeastOne | None = setting(
        None,
        "Steps between checkpoints; a crash repeats at most as many.",
        "A multiple of `loss.num_iterations`.",
        left_out=f"about {defaults.SAVE_EVERY}",
        flag="--save-every",
    )
    keep: Annotated[int, Field(ge=2)] = setting(
        2, "Checkpoints to keep.", "At least two, so that one is always complete."
    )
    report_to: tuple[Literal["wandb", "tensorboard", "trackio", "mlflow", "otel"], ...] = setting(
        (), "Trackers that also receive the metrics.", flag=Flag("--report-to", "A,B", "commas", panel="trackers")
    )
    project: str | None = setting(
        None,
        "Project in W&B and trackio; experiment in MLflow.",
        left_out="the tracker's variable, else `grpo`",
        flag=Flag("--project", panel="trackers"),
    )
    run_name: str | None = setting(
        None,
        "Name of the run in trackers.",
        left_out="the run directory's name",
        flag=Flag("--run-name", panel="trackers"),
    )
    run_group: str | None = setting(
        None, "Group of the run in trackers.", left_out="none", flag=Flag("--run-group", panel="trackers")
    )
    tags: tuple[str, ...] = setting(
        (), "Tags of the run in trackers.", flag=Flag("--tags", "A,B", "commas", panel="trackers")
    )


class FailureSection(Section):
    """When failing rewards stop the run."""

    stop_share: Share = setting(
        0.2, "Stop the run if a reward or verifier failed on more than this share of a step's completions."
    )
    no_signal_steps: Count = setting(
        10,
        "Stop the run if a reward abstains on everything for this many steps, or if no group of the first ones has two "
        "different rewards; 0: never.",
    )
    retries: Count = setting(2, "Retries of a call that failed for a transient reason (network, rate limit).")
    wait_limit: Positive = setting(1800.0, "Seconds to wait for a missing process before the run stops and names it.")


class CanarySection(Section):
    """Known completions that are scored beside the training batches, outside the loss."""

    file: Path | None = setting(
        None,
        "JSONL of completions with known scores, to watch the rewards.",
        "See [scoring.md](scoring.md#canaries).",
        left_out="none",
        flag="--canaries",
    )
    cases: bool = setting(False, "Also use the cases that rewards and verifier declare.", flag="--canary-cases")
    every: AtLeastOne = setting(1, "Batches between checks.")
    tolerance: NotNegative = setting(1e-6, "How far a score may be from the expected one.")
    share: Share = setting(
        0.0, "Share of a plugin's canaries that may fail or drift without a warning.", "For judges whose scores vary."
    )
    patience: AtLeastOne = setting(2, "Checks in a row that a plugin may be wrong; the next one stops the run.")
