"""Declares the settings of training, loss, sampling and LoRA once: type and bounds, text, flag and default.

Flags (core/cli/flags.py), docs/configuration.md and the JSON schema (core/config/reference.py) are made from here.
Combinations of settings of one section are refused here too.
"""

# Annotations are evaluated where they stand: written as text, each would be compiled again in every process.

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from grpo.core.config.defaults import (
    AGENT_CALLS,
    DEFAULT_LR,
    EMBEDDED_COMPLETION,
    EMBEDDED_STEPS,
    EPOCHS,
    LORA_LR_FACTOR,
    MADE_EPISODES,
    NAMED_COMPLETION,
    NAMED_MICRO_BATCH,
    OBSERVED,
    ROLLOUT_MICRO_TOKENS,
    ROLLOUT_TOKENS,
    SERVER_PORT,
    TOLERANCE,
    WARMUP_LR_FACTOR,
    Dtype,
)
from grpo.core.config.section import AtLeastOne, BelowOne, Count, NotNegative, PluginRef, Positive, Rate, Section, Share
from grpo.core.config.setting import About, Flag

WeightSync = Literal["delta", "everything", "broadcast"]
Correction = Literal[
    "none", "token_truncate", "token_mask", "sequence_truncate", "sequence_mask", "geometric_truncate", "geometric_mask"
]


class TrainSection(Section):
    """How long and how fast. Sizes are in completions, rates per optimizer step."""

    steps: Annotated[
        AtLeastOne | None,
        About(
            "Optimizer steps.",
            "Overrides `epochs`.",
            left_out=f"{EMBEDDED_STEPS} for the embedded model, else from `epochs`",
            flag=Flag("--steps"),
        ),
    ] = None
    epochs: Annotated[
        Positive | None,
        About(
            "Passes over the training rows, instead of `steps`.",
            left_out=f"{EPOCHS:g}, without `steps`",
            flag=Flag("--epochs"),
        ),
    ] = None
    limit: Annotated[
        AtLeastOne | None,
        About(
            "Use only the first N training rows.",
            "For an environment that generates problems, how many it generates.",
            left_out=f"all rows; generated problems: as many as the steps need, at least {MADE_EPISODES}",
            flag=Flag("--limit"),
        ),
    ] = None
    group_size: Annotated[
        Annotated[int, Field(ge=2)], About("Completions per prompt.", "G in the GRPO paper.", flag=Flag("--group-size"))
    ] = 8
    prompts_per_step: Annotated[
        AtLeastOne,
        About(
            "Prompts per step, over all processes.",
            "`prompts_per_step * group_size` must be a multiple of the number of processes.",
            flag=Flag("--prompts-per-step"),
        ),
    ] = 8
    micro_batch_size: Annotated[
        AtLeastOne | None,
        About(
            "Completions per forward and backward pass of a process.",
            "Divides each process's share. Changes memory and speed only.",
            left_out=f"up to {NAMED_MICRO_BATCH}, all for the embedded model; of several turns as many as have "
            f"{ROLLOUT_MICRO_TOKENS:,} tokens",
            flag=Flag("--micro-batch-size", panel="machine"),
        ),
    ] = None
    lr: Annotated[
        Rate | None,
        About(
            "Learning rate.",
            left_out=f"{DEFAULT_LR['named']:g}, {DEFAULT_LR['embedded']:g} for the embedded model; "
            f"{LORA_LR_FACTOR:g} times as much with LoRA",
            flag=Flag("--lr"),
        ),
    ] = None
    lr_schedule: Annotated[
        Literal["constant", "constant_with_warmup", "linear", "cosine"],
        About("Learning-rate schedule after the warm-up."),
    ] = "constant_with_warmup"
    lr_warmup_steps: Annotated[Count, About("Warm-up steps of the learning rate; the first has 1 / (N + 1) of it.")] = 5
    adam_beta1: Annotated[BelowOne, About("Adam's beta1.")] = 0.9
    adam_beta2: Annotated[BelowOne, About("Adam's beta2.")] = 0.99
    weight_decay: Annotated[NotNegative, About("Decoupled weight decay.")] = 0.0
    max_grad_norm: Annotated[Positive, About("Gradient norm clipping.")] = 1.0
    warmup_steps: Annotated[
        Count,
        About(
            "Supervised steps on the environment's demonstrations before GRPO.",
            "For a model that never finds an answer by itself.",
            flag=Flag("--warmup-steps"),
        ),
    ] = 0
    warmup_lr: Annotated[
        Rate | None, About("Learning rate of the supervised steps.", left_out=f"{WARMUP_LR_FACTOR:g} times `lr`")
    ] = None
    checkpointing: Annotated[
        Literal["none", "full", "offload", "auto"],
        About(
            "Activation checkpointing:",
            "keep everything; one tensor per layer; the same in host memory. `auto` takes the first that fits the GPU, "
            "and `none` on CPU.",
            flag=Flag("--checkpointing", "MODE", panel="machine"),
        ),
    ] = "auto"
    check_memory: Annotated[
        bool, About("Refuse a run that needs more memory than this machine has.", "See [plan.md](plan.md).")
    ] = True
    share_prompts: Annotated[
        bool, About("Compute a prompt once per group and pack rows without padding, if the model allows it.")
    ] = True
    head: Annotated[
        Literal["grpo", "trl"],
        About(
            "Log-probabilities and loss:",
            "ours without logits ([kernels](kernels.md)), or TRL's. Mixture-of-experts models always use TRL's.",
        ),
    ] = "grpo"
    dtype: Annotated[
        Dtype | None,
        About(
            "Data type of the weights.",
            "Full fine-tuning in `bfloat16` also keeps the rounding errors of weights and second moments, 2 bytes "
            "each. `float16` is for adapters only.",
            left_out="`bfloat16` for a named model on a GPU, else `float32`",
            flag=Flag("--dtype", panel="model"),
        ),
    ] = None


class LossSection(Section):
    """The policy loss and the advantage estimator."""

    type: Annotated[
        PluginRef,
        About(
            "Policy loss, for example dapo:epsilon_high=0.28.",
            "See [losses.md](losses.md). A table has `name` and `options`.",
            kind="SPEC or table",
            flag=Flag("--loss", "SPEC"),
        ),
    ] = "dapo"
    advantage: Annotated[
        PluginRef,
        About(
            "Advantage estimator, for example rloo.",
            "See [losses.md](losses.md). A table has `name` and `options`.",
            kind="SPEC or table",
            flag=Flag("--advantage", "SPEC"),
        ),
    ] = "group_mean"
    beta: Annotated[
        NotNegative, About("KL coefficient against the reference policy; 0 loads no reference.", flag=Flag("--beta"))
    ] = 0.0
    use_bias_correction_kl: Annotated[
        bool,
        About(
            "Multiply the KL term by the probability ratio, as TRL does.",
            "Its gradient is then that of the divergence (DeepSeek-V3.2, 2512.02556); without it, the GRPO paper's.",
        ),
    ] = True
    mask_truncated_completions: Annotated[
        bool, About("Exclude truncated completions, and rollouts that a budget ended, from the loss.")
    ] = False
    num_iterations: Annotated[AtLeastOne, About("Optimizer steps on each generated batch (mu in the GRPO paper).")] = 1
    rollout_correction: Annotated[
        Correction | None,
        About(
            "Importance weights between the policy and the rollout engine.",
            "Per token, per completion (`sequence`) or geometric mean; weights beyond cap or floor are clipped "
            "(`truncate`) or their tokens excluded (`mask`). Not with TRL's head.",
            left_out="`token_truncate` if vLLM samples and our head trains, else `none`",
        ),
    ] = None
    rollout_correction_cap: Annotated[Annotated[float, Field(ge=1)], About("Largest importance weight.")] = 2.0
    rollout_correction_floor: Annotated[
        Share,
        About(
            "Smallest importance weight; 0: no bound.",
            "IcePop (arXiv 2510.18855) is `token_mask` with floor 0.5 and cap 5.",
        ),
    ] = 0.0


class RolloutSection(Section):
    """How completions are sampled; lengths in tokens."""

    backend: Annotated[
        Literal["hf", "vllm", "vllm-server"],
        About(
            "Rollout backend:",
            "the training model itself, vLLM in this process, or `grpo serve-rollouts`; see [vllm.md](vllm.md).",
            flag=Flag("--rollout", "BACKEND"),
        ),
    ] = "hf"
    server_url: Annotated[
        str,
        About(
            "Address of `grpo serve-rollouts`; several: A,B.",
            "Several servers share the prompts of each batch.",
            kind="`http://HOST:PORT`",
            flag=Flag("--server-url", "URL"),
        ),
    ] = f"http://127.0.0.1:{SERVER_PORT}"
    server_wait: Annotated[NotNegative, About("How long to wait for a lost server.", kind="seconds")] = 300.0
    lora_sync: Annotated[
        Literal["adapter", "folded", "auto"],
        About(
            "How an adapter is synced to vLLM:",
            "alone, merged into a copy of the weights, or whichever is faster on the first batches.",
            flag=Flag("--lora-sync", "WAY"),
        ),
    ] = "auto"
    weight_sync: Annotated[
        WeightSync | None,
        About(
            "What is sent to a rollout server after a step:",
            "changed values (trainer and servers keep a copy of the weights), everything, or everything by NCCL. See "
            "[vllm.md](vllm.md#what-is-synced).",
            left_out="delta for 16-bit weights, else everything",
        ),
    ] = None
    memory_share: Annotated[
        Annotated[float, Field(gt=0, lt=1)], About("Share of a GPU's memory for vLLM's weights and cache.")
    ] = 0.3
    tolerance: Annotated[
        Positive | None,
        About(
            "Largest mean difference between the log-probabilities of sampling and training, in nats.",
            "Beyond it, a vLLM step is repeated, then the run stops.",
            left_out=", ".join(f"{most:g} in {dtype}" for dtype, most in TOLERANCE.items()),
        ),
    ] = None
    ahead: Annotated[
        Count,
        About(
            "Batches that vLLM samples ahead while the policy trains.",
            "Rollouts are then as many steps old. More than 1 needs `vllm-server`. See "
            "[vllm.md](vllm.md#batches-ahead).",
            flag=Flag("--ahead", "BATCHES"),
        ),
    ] = 0
    partial: Annotated[
        Count,
        About(
            "Most tokens that a rollout samples in one step; 0: no limit.",
            "The next step continues it, so no step waits for its longest rollout. See "
            "[rollouts.md](rollouts.md#partial-rollouts).",
            flag=Flag("--partial", "TOKENS"),
        ),
    ] = 0
    refill: Annotated[
        Count,
        About(
            "Retries of a completion that a reward or environment failed on, in the same step.", flag=Flag("--refill")
        ),
    ] = 0
    dynamic: Annotated[
        NotNegative,
        About(
            "Replace zero-signal groups by other prompts, for up to TIMES the step's first tokens.",
            "See [rollouts.md](rollouts.md#dynamic-sampling).",
            flag=Flag("--dynamic", "TIMES"),
        ),
    ] = 0.0
    share_weights: Annotated[
        bool,
        About(
            "Share the frozen weights between LoRA training and vLLM in this process.",
            "See [vllm.md](vllm.md#one-copy-of-the-frozen-weights).",
            flag=Flag("--share-weights", panel="machine"),
        ),
    ] = False
    sleep: Annotated[bool | None, About("vLLM releases its memory between rollouts.", left_out="on a GPU")] = None
    temperature: Annotated[
        Positive,
        About(
            "Sampling temperature.",
            "Used in sampling and in training. Held-out evaluation is always greedy.",
            flag=Flag("--temperature"),
        ),
    ] = 1.0
    top_p: Annotated[Annotated[float, Field(gt=0, le=1)], About("Nucleus sampling.")] = 1.0
    top_k: Annotated[Count, About("Sample from the k most probable tokens; 0: all.")] = 0
    min_p: Annotated[BelowOne, About("Exclude tokens below this share of the most probable one.")] = 0.0
    max_prompt_length: Annotated[
        AtLeastOne | None,
        About(
            "Longest prompt, in tokens; a longer one is an error.",
            left_out="what fits the context",
            flag=Flag("--max-prompt-length"),
        ),
    ] = None
    max_completion_length: Annotated[
        AtLeastOne | None,
        About(
            "Longest completion, in tokens; a longer one is cut.",
            "Per turn in a multi-turn environment. Must fit the context with the longest prompt.",
            left_out=f"{NAMED_COMPLETION}, {EMBEDDED_COMPLETION} for the embedded model",
            flag=Flag("--max-completion-length"),
        ),
    ] = None
    batch_size: Annotated[
        AtLeastOne | None, About("Completions that a process decodes at once.", left_out="all at once")
    ] = None
    max_turns: Annotated[
        AtLeastOne | None,
        About(
            "Most turns of a rollout; of an agent, calls.",
            left_out=f"what the environment allows; {AGENT_CALLS} calls of an agent",
        ),
    ] = None
    max_rollout_length: Annotated[
        AtLeastOne | None,
        About(
            "Most tokens after the prompt over all turns, sampled and observed.",
            left_out=f"what fits the context, at most {OBSERVED} between two turns on average and {ROLLOUT_TOKENS:,} "
            "in all",
        ),
    ] = None
    agent_seconds: Annotated[
        Positive,
        About(
            "Time limit of an agent in one episode, without the time in which it waits for the policy.",
            kind="seconds",
            flag=Flag("--agent-seconds", panel="rollout"),
        ),
    ] = 300.0
    agents_at_once: Annotated[
        AtLeastOne,
        About("Agents that run side by side in a process.", flag=Flag("--agents-at-once", panel="rollout")),
    ] = 64
    agent_trains: Annotated[
        Literal["main", "tree", "all"],
        About(
            "Which calls of an agent train: those of its main conversation, also those of sub-agents, or all.",
            "`tree` leaves out auxiliary calls: those that the agent's plugin names, or, if it names none, the calls "
            "without tools of an episode in which others have tools.",
        ),
    ] = "tree"
    agent_window: Annotated[
        Positive | None,
        About(
            "Seconds after which waiting agents are answered though others are still busy.",
            "A run with a seed then no longer repeats exactly.",
            left_out="agents are answered when all that run wait",
            kind="seconds",
        ),
    ] = None
    step_timeout: Annotated[
        Positive, About("Time limit of one environment call; beyond it the rollout fails.", kind="seconds")
    ] = 60.0
    env_processes: Annotated[
        Count,
        About(
            "Processes that step multi-turn environments; 0: threads.",
            "See [writing-environments.md](writing-environments.md#several-turns). With `--on ray` they are spread "
            "over the nodes.",
            flag=Flag("--env-processes", panel="machine"),
        ),
    ] = 0


class LoraSection(Section):
    """A low-rank adapter instead of full fine-tuning."""

    enabled: Annotated[
        bool, About("Train a low-rank adapter, or all weights.", "LoRA: arXiv 2106.09685.", flag=Flag("--lora/--full"))
    ] = False
    rank: Annotated[AtLeastOne, About("Rank of the adapter.", flag=Flag("--lora-rank"))] = 16
    alpha: Annotated[
        Positive | None, About("Alpha of the adapter.", left_out="twice the rank", flag=Flag("--lora-alpha"))
    ] = None
    targets: Annotated[
        tuple[str, ...] | Literal["all-linear"],
        About(
            "Modules to adapt, or all linear layers.",
            kind="list of names, or `all-linear`",
            flag=Flag("--lora-targets", "A,B", "commas"),
        ),
    ] = "all-linear"
    dropout: Annotated[BelowOne, About("Dropout of the adapter's input in training.")] = 0.0
    bits: Annotated[
        Literal[4] | None,
        About(
            "Quantise the frozen weights (QLoRA).",
            "Needs bitsandbytes and an NVIDIA GPU.",
            left_out="off",
            flag=Flag("--bits"),
        ),
    ] = None

    @model_validator(mode="after")
    def _settings_of_an_adapter_that_is_off(self) -> Self:
        fields = type(self).model_fields
        idle = [f"lora.{name}" for name, field in fields.items() if getattr(self, name) != field.default]
        if idle and not self.enabled:
            raise ValueError(f"{', '.join(idle)} would do nothing without an adapter. Add --lora (lora.enabled=true)")
        return self
