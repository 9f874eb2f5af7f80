"""Compares a rollout server with the needs of a run, and writes the command that starts a matching server."""

from __future__ import annotations

import json
import shlex
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from grpo.core.config.defaults import SERVER_PORT
from grpo.plugins.errors import UsageError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from grpo.core.config.schema import RunConfig
    from grpo.core.plan import Plan

PROTOCOL = 1  # raised whenever the two sides would no longer understand each other
TOKEN = "GRPO_SERVER_TOKEN"  # the environment variable that both sides read; arguments are seen by every user
TRAITS = (  # what has to be equal beside the weights, which are handed over
    "model_type",
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "hidden_act",
    "rms_norm_eps",
    "rope_parameters",
    "sliding_window",
    "tie_word_embeddings",
)


@dataclass(frozen=True, slots=True)
class ServerCapabilities:
    """A rollout server as it describes itself, or as a run wants it."""

    model: str  # a folder or hub id, for people: weights are handed over, so another name may be as good
    traits: Mapping[str, Any]
    tokenizer: int
    dtype: str
    context: int  # tokens of prompt and completion; wanted: at least
    # it reports log-probabilities before temperature and filters, else after; wanted None: either
    raw_logprobs: bool | None
    lora_rank: int | None = None  # the largest rank that it serves; wanted: at least; None: no adapters
    lora_modules: tuple[str, ...] = ()  # last parts of the names of the modules that it can adapt
    block: int = 0  # tokens in a block of the prefix cache; wanted: 0
    vllm: str = ""  # its version; wanted: empty
    workers: int = 1  # processes that share its layers; wanted: 1, for any number
    device: str = ""  # type of the device that it computes on; wanted: empty
    protocol: int = PROTOCOL


def card_of_plan(plan: Plan) -> ServerCapabilities:
    from grpo.core.policy.load import linear_modules
    from grpo.core.rollout.limits import engine_context

    config = plan.config
    alone = config.lora.enabled and config.rollout.lora_sync != "folded"
    targets = config.lora.targets
    if isinstance(targets, str):
        targets = tuple(linear_modules(plan.model_config))
    return ServerCapabilities(
        model=plan.source.path,
        traits=traits_of(plan.model_config),
        tokenizer=vocabulary_of(plan.tokenizer),
        dtype=config.train.dtype,
        context=engine_context(plan),
        raw_logprobs=logprobs_of(config),
        lora_rank=config.lora.rank if alone else None,
        lora_modules=last_parts(targets) if alone else (),
    )


def servers_of(plan: Plan) -> list[tuple[str, ServerCapabilities, str]]:
    """Returns the address of each server of a plan, what it has to be, and the command that starts it."""
    wanted = card_of_plan(plan)
    all_linear = plan.config.lora.targets == "all-linear"
    return [
        (url, wanted, command_for(wanted, url, embedded=plan.config.model is None, all_linear=all_linear))
        for url in plan.config.rollout.server_url.split(",")
    ]


def card_of_model(
    source: str, *, dtype: str, context: int | None, raw_logprobs: bool, rank: int | None, targets: Sequence[str] | str
) -> ServerCapabilities:
    """Returns what a server of a model will be, before it has an engine.

    `context`: tokens of prompt and completion; None: the model's own limit. Raises UsageError if the model cannot be
    read, or lacks a limit or these modules.
    """
    from grpo.core.config.sections import LoraSection
    from grpo.core.policy.load import linear_modules, load_model_config, load_tokenizer, refuse_unknown_targets
    from grpo.core.rollout.types import context_length, refuse_unsafe_rope

    config = load_model_config(source)
    refuse_unsafe_rope(config)
    limit = context_length(config)
    if context is None and limit is None:
        raise UsageError(f"the configuration of {source} names no longest context. Name one with --context.")
    if context is not None and limit is not None and context > limit:
        raise UsageError(f"--context {context} is over the model's own limit of {limit}. Lower it.")
    names: Sequence[str] = ()
    if rank is not None:
        if not isinstance(targets, str):
            refuse_unknown_targets(LoraSection(enabled=True, targets=tuple(targets)), config)
        names = linear_modules(config) if isinstance(targets, str) else targets
    return ServerCapabilities(
        model=source,
        traits=traits_of(config),
        tokenizer=vocabulary_of(load_tokenizer(source)),
        dtype=dtype,
        context=context or limit or 0,
        raw_logprobs=raw_logprobs,
        lora_rank=rank,
        lora_modules=last_parts(names),
    )


def largest_frame(source: str) -> int:
    """Returns the bytes of a model's largest tensor in transfer: each number with its place. Raises UsageError."""
    from grpo.core.policy.load import empty_model, load_model_config

    model = empty_model(load_model_config(source))
    return 16 * max(int(parameter.numel()) for parameter in model.parameters()) + 2**20


def refuse_unsplittable(source: str, devices: int) -> None:
    """Refuses to share a model's layers among devices that are not there, or that it cannot be split for."""
    import torch

    from grpo.core.policy.load import load_model_config, text_setting

    if devices == 1:
        return
    present = torch.cuda.device_count()
    if torch.cuda.is_available() and devices > present:
        raise UsageError(f"--tensor-parallel {devices}: this machine has {present} GPUs. Lower it.")
    config = load_model_config(source)
    wanted = [_counts(text_setting(config, name)) for name in ("num_attention_heads", "num_key_value_heads")]
    odd = next((count for counts in wanted for count in counts if count % devices), None)
    if odd is not None:
        raise UsageError(
            f"--tensor-parallel {devices}: the model's layers have {odd} heads of attention, or of keys and values, "
            f"which cannot be shared so. Choose a divisor of {odd}."
        )


def _counts(setting: Any) -> list[int]:
    return [count for count in (setting if isinstance(setting, list) else [setting]) if count]


def last_parts(names: Sequence[str]) -> tuple[str, ...]:
    """Returns the last parts of modules' names, sorted, each once."""
    return tuple(sorted({name.rpartition(".")[2] for name in names}))


def logprobs_of(config: RunConfig) -> bool | None:
    """Returns a run's log-probabilities (`ServerCapabilities`): before or after temperature and filters."""
    if config.rollout.temperature != 1.0:
        return False
    filtered = (config.rollout.top_p, config.rollout.top_k, config.rollout.min_p) != (1.0, 0, 0.0)
    return True if filtered else None


def traits_of(model_config: Any) -> dict[str, Any]:
    """Returns a model's architecture from its configuration, as JSON would give it back."""
    from grpo.core.policy.load import text_setting

    traits = {name: text_setting(model_config, name) for name in TRAITS}
    plain: dict[str, Any] = json.loads(json.dumps(traits, default=str))
    return plain


def vocabulary_of(tokenizer: PreTrainedTokenizerBase) -> int:
    """Returns the CRC-32 of a tokenizer's vocabulary."""
    words = sorted(tokenizer.get_vocab().items())
    return zlib.crc32(json.dumps(words).encode())


def card_from_json(tree: Mapping[str, Any]) -> ServerCapabilities:
    """Reads a card, without what a newer server adds. Raises UsageError."""
    known = {field.name for field in fields(ServerCapabilities)}
    try:
        card = ServerCapabilities(**{name: value for name, value in tree.items() if name in known})
    except TypeError:
        raise UsageError("it answers, and not as a server of: grpo serve-rollouts") from None
    return ServerCapabilities(**{**asdict(card), "lora_modules": tuple(card.lora_modules)})


def misfits(card: ServerCapabilities, wanted: ServerCapabilities) -> list[str]:
    """Returns in words where a server is not what a run needs, the most telling first."""
    if card.protocol != wanted.protocol:
        return [f"it speaks version {card.protocol} of the protocol, this grpo version {wanted.protocol}"]
    differences = [
        f"its model has {name} {card.traits.get(name)}, the run's {value}"
        for name, value in wanted.traits.items()
        if card.traits.get(name) != value
    ]
    if card.tokenizer != wanted.tokenizer:
        differences.append("its tokenizer has another vocabulary")
    if card.dtype != wanted.dtype:
        differences.append(f"it computes in {card.dtype}, the run in {wanted.dtype}")
    if card.context < wanted.context:
        differences.append(f"its context is {card.context} tokens, the run needs {wanted.context}")
    if wanted.raw_logprobs not in (None, card.raw_logprobs):
        when = "before" if card.raw_logprobs else "after"
        differences.append(f"it reports log-probabilities {when} temperature and filters, and the run needs the others")
    if wanted.lora_rank is not None:
        missing = sorted(set(wanted.lora_modules) - set(card.lora_modules))
        if card.lora_rank is None:
            differences.append(
                "it serves no adapters, and the run trains one (or hand it over with --lora-sync folded)"
            )
        elif card.lora_rank < wanted.lora_rank:
            differences.append(f"it serves adapters up to rank {card.lora_rank}, the run's has {wanted.lora_rank}")
        elif missing:
            differences.append(f"it cannot adapt {', '.join(missing)}")
    return differences


def command_for(wanted: ServerCapabilities, url: str, *, embedded: bool, all_linear: bool) -> str:
    """Returns the command that starts a server which fits; `all_linear`: omit the adapted modules."""
    place = urlsplit(url)
    words = ["grpo", "serve-rollouts"]
    if not embedded:
        words += ["--model", wanted.model]
    words += ["--dtype", wanted.dtype, "--context", str(wanted.context)]
    if wanted.raw_logprobs:
        words.append("--raw-logprobs")
    if wanted.lora_rank is not None:
        words += ["--lora-rank", str(wanted.lora_rank)]
        if not all_linear:
            words += ["--lora-targets", ",".join(wanted.lora_modules)]
    if place.hostname not in ("127.0.0.1", "localhost", "::1"):
        words += ["--host", str(place.hostname)]
    if place.port not in (None, SERVER_PORT):
        words += ["--port", str(place.port)]
    return shlex.join(words)
