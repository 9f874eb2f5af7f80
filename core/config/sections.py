"""The settings of training and sampling in their sections, each declared once: type and bounds, text, flag and default.

Flags (core/cli/flags.py), docs/configuration.md and the JSON schema (core/config/reference.py) are made from here. What
depends on several settings of one section is refused here, too.
"""

# Annotations are evaluated where they stand: written as text, each would be compiled again in every process.

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from grpo.core.config.defaults import (
    DEFAULT_LR,
    EMBEDDED_COMPLETION,
    EMBEDDED_STEPS,
    EPOCHS,
    LORA_LR_FACTOR,
    MADE_EPISODES,
    NAMED_COMPLETION,
    NAMED_MICRO_BATCH,
    OBSERVED,
    SERVER_PORT,
    TOLERANCE,
    WARMUP_LR_FACTOR,
    Dtype,
)
from grpo.core.config.plugin_ref import PluginRef
from grpo.core.config.section import AtLeastOne, BelowOne, Count, NotNegative, Positive, Rate, Section, Share
from grpo.core.config.setting import About, Flag

WeightSync = Literal["delta", "everything", "broadcast"]
Correction = Literal[
    "none",
    "token_truncate",
    "token_mask",
    "sequence_truncate",
    "sequence_mask",
    "geometric_truncate",
    "geometric_mask",
]


class TrainSection(Section):
    """How long and how fast. Sizes are in completions, rates per optimizer step."""

    steps: Annotated[
        AtLeastOne | None,
        About(
            "Optimizer steps.",
            "Wins over `epochs`.",
            left_out=f"{EMBEDDED_STEPS} for the embedded model, else from `epochs`",
            flag=Flag("--steps"),
        ),
    ] = None
    epochs: Annotated[
        Positive | None,
        About(
            "Passes over the training rows, instead of a number of steps.",
            left_out=f"{EPOCHS:g}, where `steps` is left out",
            flag=Flag("--epochs"),
        ),
    ] = None
    limit: Annotated[
        AtLeastOne | None,
        About(
            "Use only the first N training rows.",
            "For an environment that makes its own problems, how many it makes.",
            left_out=f"all rows; problems that are made: as many as the steps take, at least {MADE_EPISODES}",
            flag=Flag("--limit"),
        ),
    ] = None
    group_size: Annotated[
        Annotated[int, Field(ge=2)],
        About(
            "Completions per prompt.",
            "They are compared with each other (G in the GRPO paper).",
            flag=Flag("--group-size"),
        ),
    ] = 8
    prompts_per_step: Annotated[
        AtLeastOne,
        About(
            "Prompts per generation, over all processes.",
            "`prompts_per_step * group_size` must be a multiple of the number of processes.",
            flag=Flag("--prompts-per-step"),
        ),
    ] = 8
    micro_batch_size: Annotated[
        AtLeastOne | None,
        About(
            "Completions per forward and backward pass of a process.",
            "Divides each process's share. Changes memory and speed only.",
            left_out=f"up to {NAMED_MICRO_BATCH}, all for the embedded model",
            flag=Flag("--micro-batch-size"),
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
        About("How the learning rate goes on after its rise."),
    ] = "constant_with_warmup"
    lr_warmup_steps: Annotated[
        Count, About("Steps over which the learning rate rises; the first one has 1 / (N + 1) of it.")
    ] = 5
    adam_beta1: Annotated[BelowOne, About("Adam's decay of the mean gradient.")] = 0.9
    adam_beta2: Annotated[BelowOne, About("Adam's decay of the mean squared gradient.")] = 0.99
    weight_decay: Annotated[NotNegative, About("Decoupled weight decay.")] = 0.0
    max_grad_norm: Annotated[Positive, About("The gradient's norm is clipped to this.")] = 1.0
    warmup_steps: Annotated[
        Count,
        About(
            "Supervised steps on the environment's worked answers before GRPO.",
            "Without them a model that never finds an answer learns the format only.",
            flag=Flag("--warmup-steps"),
        ),
    ] = 0
    warmup_lr: Annotated[
        Rate | None,
        About("Learning rate of the supervised steps.", left_out=f"{WARMUP_LR_FACTOR:g} times `lr`"),
    ] = None
    checkpointing: Annotated[
        Literal["none", "full", "offload", "auto"],
        About(
            "Which activations are kept for the backward pass:",
            "all; one tensor per layer, the rest computed again; these tensors in host memory too. `auto` takes the "
            "first that fits the GPU by an estimate, and `none` on CPU.",
            flag=Flag("--checkpointing", "MODE"),
        ),
    ] = "auto"
    check_memory: Annotated[
        bool,
        About(
            "Refuses a run that needs more memory than this machine has, before anything loads.",
            "See [plan.md](plan.md).",
        ),
    ] = True
    share_prompts: Annotated[
        bool,
        About(
            "Computes a prompt once for the completions of its group, and packs rows without padding, where the model "
            "allows it."
        ),
    ] = True
    head: Annotated[
        Literal["grpo", "trl"],
        About(
            "Who computes log-probabilities and the loss:",
            "ours, without logits ([kernels](kernels.md)), or TRL as it comes, to compare. Mixture-of-experts models "
            "always use TRL's.",
        ),
    ] = "grpo"
    dtype: Annotated[
        Dtype | None,
        About(
            "Data type of the weights.",
            "Full fine-tuning in `bfloat16` keeps what rounding leaves out of each weight and of its mean squared "
            "gradient beside them (2 bytes more each), since steps of 1e-6 would move almost no weight; `float16` is "
            "for adapters only.",
            left_out="`bfloat16` for a named model on a GPU, else `float32`",
            flag=Flag("--dtype"),
        ),
    ] = None


class LossSection(Section):
    """The objective; the names are the field's."""

    type: Annotated[
        PluginRef,
        About(
            "What tokens cost, for example dapo:epsilon_high=0.28.",
            "`grpo plugins show loss:dapo` prints its formula and options; see "
            "[losses.md](losses.md). A table has the key `name` and may have `options`.",
            kind="SPEC or table",
            flag=Flag("--loss", "SPEC"),
        ),
    ] = "dapo"
    advantage: Annotated[
        PluginRef,
        About(
            "What scores are worth to the loss, for example rloo.",
            "See [losses.md](losses.md). A table has the key `name` and may have `options`.",
            kind="SPEC or table",
            flag=Flag("--advantage", "SPEC"),
        ),
    ] = "group_mean"
    beta: Annotated[
        NotNegative,
        About("Weight of the KL divergence from the reference policy; 0 loads no reference.", flag=Flag("--beta")),
    ] = 0.0
    use_bias_correction_kl: Annotated[
        bool,
        About(
            "Multiplies the KL term by the probability ratio, as TRL does by default.",
            "Its gradient is then that of the divergence itself (DeepSeek-V3.2, 2512.02556). Without the factor the "
            "term is the plain estimate of the GRPO paper.",
        ),
    ] = True
    mask_truncated_completions: Annotated[
        bool,
        About(
            "Leaves completions that hit the length limit out of the loss, and rollouts that a budget of turns or "
            "tokens ended."
        ),
    ] = False
    num_iterations: Annotated[AtLeastOne, About("Optimizer steps on each generated batch (mu in the GRPO paper).")] = 1
    rollout_correction: Annotated[
        Correction | None,
        About(
            "Weighs tokens by their probability under the policy over that under the rollout engine.",
            "Per token, by the product over a completion (`sequence`) or by its geometric mean; weights beyond the cap "
            "or the floor are clipped to it (`truncate`), or their tokens left out (`mask`). By our head only.",
            left_out="`token_truncate` where vLLM samples and our head trains, else `none`",
        ),
    ] = None
    rollout_correction_cap: Annotated[Annotated[float, Field(ge=1)], About("The largest of these weights.")] = 2.0
    rollout_correction_floor: Annotated[
        Share,
        About(
            "The smallest of these weights; 0: no bound.",
            "IcePop (arXiv 2510.18855) is `token_mask` with a floor of 0.5 and a cap of 5.",
        ),
    ] = 0.0


class RolloutSection(Section):
    """How completions are sampled; lengths in tokens."""

    backend: Annotated[
        Literal["hf", "vllm", "vllm-server"],
        About(
            "Who samples:",
            "the training model itself, vLLM in the same process, or vLLM behind `grpo serve-rollouts`; see "
            "[vllm.md](vllm.md).",
            flag=Flag("--rollout", "BACKEND"),
        ),
    ] = "hf"
    server_url: Annotated[
        str,
        About(
            "Where `grpo serve-rollouts` listens; several: A,B.",
            "Several share the prompts of each batch.",
            kind="`http://HOST:PORT`",
            flag=Flag("--server-url", "URL"),
        ),
    ] = f"http://127.0.0.1:{SERVER_PORT}"
    server_wait: Annotated[
        NotNegative, About("How long to wait for a server that is gone in the middle of a run.", kind="seconds")
    ] = 300.0
    lora_sync: Annotated[
        Literal["adapter", "folded", "auto"],
        About(
            "How vLLM gets an adapter:",
            "alone, folded into a copy of the weights, or whichever is faster on the first batches.",
            flag=Flag("--lora-sync", "WAY"),
        ),
    ] = "auto"
    weight_sync: Annotated[
        WeightSync | None,
        About(
            "What a rollout server is sent after a step:",
            "everything, what changed since it was last proven to have everything (which keeps a copy of the weights "
            "in the memory of the machine that trains and of each server), or everything by NCCL between GPUs. See "
            "[vllm.md](vllm.md).",
            left_out="delta for weights of 16 bits, else everything",
        ),
    ] = None
    memory_share: Annotated[
        Annotated[float, Field(gt=0, lt=1)], About("Share of a GPU's memory for vLLM's weights and cache.")
    ] = 0.3
    tolerance: Annotated[
        Positive | None,
        About(
            "Largest mean difference of the log-probabilities of sampling and training that is rounding, in nats.",
            "Beyond it a step that vLLM sampled is done again, then the run stops.",
            left_out=", ".join(f"{most:g} in {dtype}" for dtype, most in TOLERANCE.items()),
        ),
    ] = None
    ahead: Annotated[
        Count,
        About(
            "How many batches vLLM samples ahead, while the policy trains.",
            "Rollouts are so many steps old then. 1 is enough where batches take about as long as steps; more, with "
            "`vllm-server`, where some take much longer than others. See [vllm.md](vllm.md).",
            flag=Flag("--ahead", "BATCHES"),
        ),
    ] = 0
    partial: Annotated[
        Count,
        About(
            "Tokens that a rollout samples in one step; 0: all.",
            "One that has not ended by then is continued by the policy of the next step, and a group trains when all "
            "of it have ended, so no step waits for its longest rollout. See "
            "[rollouts.md](rollouts.md#partial-rollouts).",
            flag=Flag("--partial", "TOKENS"),
        ),
    ] = 0
    refill: Annotated[
        Count,
        About(
            "How often a completion without a score is sampled again in its step.",
            "One that a reward failed on, or that its environment lost; 0: it leaves its group smaller.",
            flag=Flag("--refill"),
        ),
    ] = 0
    dynamic: Annotated[
        NotNegative,
        About(
            "Replaces groups whose scores are all alike by groups of other prompts, in the same step.",
            "For at most so many times the tokens of the step's first samples; 0: they stay, and teach nothing. See "
            "[rollouts.md](rollouts.md).",
            flag=Flag("--dynamic", "TIMES"),
        ),
    ] = 0.0
    share_weights: Annotated[
        bool,
        About(
            "One copy of the frozen weights for an adapter's training and for vLLM in this process.",
            "See [vllm.md](vllm.md).",
            flag=Flag("--share-weights"),
        ),
    ] = False
    sleep: Annotated[
        bool | None, About("vLLM gives its memory up between rollouts.", left_out="where there is a GPU")
    ] = None
    temperature: Annotated[
        Positive,
        About(
            "Sampling temperature.",
            "It divides the logits, in sampling and in training. Held-out evaluation is always greedy.",
            flag=Flag("--temperature"),
        ),
    ] = 1.0
    top_p: Annotated[
        Annotated[float, Field(gt=0, le=1)], About("Samples from the smallest set of tokens with this probability.")
    ] = 1.0
    top_k: Annotated[Count, About("Samples from the k most probable tokens; 0: from all.")] = 0
    min_p: Annotated[BelowOne, About("Leaves out tokens below this share of the most probable one.")] = 0.0
    max_prompt_length: Annotated[
        AtLeastOne | None,
        About(
            "A longer prompt is an error.",
            "It names the row; nothing is cut off.",
            left_out="what fits the context",
            flag=Flag("--max-prompt-length"),
        ),
    ] = None
    max_completion_length: Annotated[
        AtLeastOne | None,
        About(
            "New tokens per completion, which is cut there.",
            "Together with the longest prompt it must fit the model's context.",
            left_out=f"{NAMED_COMPLETION}, {EMBEDDED_COMPLETION} for the embedded model",
            flag=Flag("--max-completion-length"),
        ),
    ] = None
    batch_size: Annotated[
        AtLeastOne | None,
        About("Completions that a process decodes at once: less memory, more time.", left_out="all at once"),
    ] = None
    max_turns: Annotated[
        AtLeastOne | None,
        About(
            "In a multi-turn environment: the most turns of the policy.",
            "`max_completion_length` is then for one turn.",
            left_out="what the environment allows",
        ),
    ] = None
    max_rollout_length: Annotated[
        AtLeastOne | None,
        About(
            "Tokens after the prompt over all turns, sampled and observed.",
            "A turn begins only where a whole one still fits.",
            left_out=f"what fits the context, at most {OBSERVED} between two turns on average",
        ),
    ] = None
    step_timeout: Annotated[
        Positive,
        About(
            "For one call of an environment that is stepped; a later answer is a failure of its rollout.",
            kind="seconds",
        ),
    ] = 60.0
    env_processes: Annotated[
        Count,
        About(
            "Processes that step multi-turn environments; 0: threads of the process that trains.",
            "For environments that compute in Python or may crash; see "
            "[writing-environments.md](writing-environments.md#several-turns). With `--on ray` they are spread over "
            "the nodes.",
            flag=Flag("--env-processes"),
        ),
    ] = 0


class LoraSection(Section):
    """A low-rank adapter instead of full fine-tuning."""

    enabled: Annotated[
        bool,
        About(
            "Trains a low-rank adapter and freezes the model, or trains all weights.",
            "LoRA: arXiv 2106.09685.",
            flag=Flag("--lora/--full"),
        ),
    ] = False
    rank: Annotated[AtLeastOne, About("Rank of the adapter, r.", flag=Flag("--lora-rank"))] = 16
    alpha: Annotated[
        Positive | None, About("Alpha of the adapter.", left_out="twice the rank", flag=Flag("--lora-alpha"))
    ] = None
    targets: Annotated[
        tuple[str, ...] | Literal["all-linear"],
        About(
            "The modules to adapt, or all linear layers.",
            kind="list of names, or `all-linear`",
            flag=Flag("--lora-targets", "A,B", "commas"),
        ),
    ] = "all-linear"
    dropout: Annotated[
        BelowOne,
        About("Dropout of the adapter's input in training; sampling does without, so the two disagree a little."),
    ] = 0.0
    bits: Annotated[
        Literal[4] | None,
        About(
            "Quantises the frozen weights (QLoRA).",
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
