"""Opens the rollout backend of a plan, which the caller closes, and what its agent needs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from grpo.core.processes.rank import count, rank
from grpo.core.rollout.hf.sampler import HfRollouts
from grpo.core.rollout.limits import engine_context, precision_of

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from grpo.core.config.settings import RolloutSettings
    from grpo.core.plan import Plan
    from grpo.core.rollout.agents.open import AgentSide
    from grpo.core.rollout.engine.link import EngineLink, GuestLink
    from grpo.core.rollout.server.capabilities import ServerCapabilities
    from grpo.core.rollout.types import Rollouts
    from grpo.plugins._spec.binding import BoundAgent, BoundEnv

    Server = tuple[str, ServerCapabilities, str]  # its address, what it has to be, the command that starts it


def open_rollouts(plan: Plan, model: Any, warned: Callable[[str], None] = lambda text: None) -> Rollouts:
    """Starts the backend of a plan; `model`: its policy as it was loaded. Raises UsageError if it cannot be served."""
    config = plan.config
    if config.rollout.backend == "hf":
        return HfRollouts(config.rollout.batch_size)
    if config.rollout.backend == "vllm":
        return _proven(plan, model, [start_engine(plan, model)])
    from grpo.core.rollout.server.capabilities import servers_of
    from grpo.core.rollout.server.client import ServerLink
    from grpo.core.rollout.sync.delta import LastWeights

    own, guest = dealt(servers_of(plan), rank(), count())
    if rank():
        # The first process alone has a display, and a server is watched by one process.
        warned = partial(print, "warning:", file=sys.stderr)
    last = LastWeights() if config.rollout.weight_sync == "delta" and own else None
    broadcasts = config.rollout.weight_sync == "broadcast"

    def connected(server: Server) -> ServerLink:
        return ServerLink(*server, config.rollout.server_wait, warned, last, broadcasts)

    return _proven(plan, model, [connected(server) for server in own], None if guest is None else connected(guest))


@contextmanager
def open_agents(
    agent: BoundAgent | None,
    envs: Sequence[BoundEnv],
    rollout: RolloutSettings,
    tokenizer: PreTrainedTokenizerBase,
    context: int | None,
    warned: Callable[[str], None],
    hidden: Sequence[str],
) -> Iterator[AgentSide | None]:
    """Starts what an agent needs, for the block; `hidden`: paths that a session must not see. Raises UsageError."""
    if agent is None:
        yield None
        return
    from grpo.core.rollout.agents.open import AgentSide

    with closing(AgentSide(agent, envs, rollout, tokenizer, context, warned, hidden)) as side:
        yield side


def dealt(servers: Sequence[Server], number: int, processes: int) -> tuple[Sequence[Server], Server | None]:
    """Assigns servers to processes: this one's own, or else the one of another process that it samples on."""
    own = servers[number::processes]
    return own, None if own else servers[number % len(servers)]


def start_engine(plan: Plan, model: Any) -> Any:
    """Starts vLLM in this process for the plan's policy."""
    import torch

    from grpo.core.rollout.engine.vllm import EngineSettings, VllmEngine
    from grpo.core.rollout.sync.payload import adapted_modules, has_adapter

    rollout, lora = plan.config.rollout, plan.config.lora
    serves_adapter = lora.enabled and rollout.lora_sync != "folded"
    modules = tuple(adapted_modules(model)) if serves_adapter and has_adapter(model) else ()
    sleeps = torch.cuda.is_available() and rollout.sleep is not False
    return VllmEngine(
        EngineSettings(
            model=plan.source.path,
            dtype=plan.config.train.dtype,
            context=engine_context(plan),
            raw_logprobs=rollout.temperature == 1.0,
            memory_share=rollout.memory_share,
            lora_rank=lora.rank if serves_adapter else None,
            lora_modules=modules,
            sleeps=sleeps and not (rollout.ahead or rollout.share_weights),
        )
    )


def _proven(plan: Plan, model: Any, links: Sequence[EngineLink], guest: GuestLink | None = None) -> Rollouts:
    from grpo.core.rollout.engine.proven import EngineRollouts
    from grpo.core.rollout.sync.payload import loaded_types

    rollout = plan.config.rollout
    return EngineRollouts(
        *links,
        guest=guest,
        tolerance=precision_of(plan.config),
        lora_sync="adapter" if rollout.share_weights else rollout.lora_sync,
        shared_bytes=_share(model, links[0]) if rollout.share_weights else None,
        types=loaded_types(model),
    )


def _share(model: Any, engine: Any) -> int:
    """Makes an engine of this process and the policy share the frozen weights; returns the bytes that this saved."""
    from grpo.core.rollout.sync.shared_weights import share_frozen

    try:
        return share_frozen(model, engine.apply(lambda served: served))
    except BaseException:
        engine.close()
        raise
