"""Chooses the rollout backend and how its tokens are weighed, and refuses settings that would be wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from grpo.core.config.schema import RunConfig
from grpo.core.config.sections import Correction
from grpo.core.planning.sync import refuse_together
from grpo.core.rollout.engine.release import refuse_missing_vllm
from grpo.plugins.errors import UsageError

if TYPE_CHECKING:
    from grpo.core.plan import Plan


def decide_rollout(config: RunConfig, processes: int) -> Correction:
    """Chooses the rollout correction. Raises UsageError."""
    refuse_impossible_rollouts(config, processes)
    refuse_impossible_partial(config, processes)
    correction = config.loss.rollout_correction
    if correction is None:
        exact = config.rollout.backend == "hf" and not config.rollout.partial
        correction = "none" if exact or config.train.head == "trl" else "token_truncate"
    return correction


def refuse_impossible_rollouts(config: RunConfig, processes: int) -> None:
    """Refuses a rollout backend that is not there, or that could not serve what trains."""
    rollout = config.rollout
    if rollout.sleep and rollout.backend != "vllm":
        raise UsageError("rollout.sleep needs the backend vllm. Add --rollout vllm, or leave it out.")
    if rollout.backend == "hf":
        return
    if rollout.backend == "vllm":
        refuse_missing_vllm()
    else:
        refuse_unusable_urls(rollout.server_url)
        if processes > 1 and rollout.server_wait >= config.failures.wait_limit:
            raise UsageError(
                f"rollout.server_wait {rollout.server_wait:g} s: the other processes wait for the one that waits for "
                f"its server, and give it up after failures.wait_limit, {config.failures.wait_limit:g} s. Lower the "
                "first or raise the second."
            )
    filtered = [name for name, off in (("top_p", 1.0), ("top_k", 0), ("min_p", 0.0)) if getattr(rollout, name) != off]
    if filtered and rollout.temperature != 1.0:
        raise UsageError(
            f"rollout.{filtered[0]} with rollout.temperature {rollout.temperature}: vLLM reports log-probabilities "
            "either before both or after both, and training computes them after the temperature only. Set "
            f"rollout.temperature=1, or leave {filtered[0]} out, or sample with rollout.backend='hf'."
        )
    if rollout.sleep:
        import torch

        if not torch.cuda.is_available():
            raise UsageError("rollout.sleep frees GPU memory between rollouts; there is no GPU here. Leave it out.")


def refuse_unusable_urls(urls: str) -> None:
    """Refuses what is no list of server addresses."""
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


def refuse_unfit_server(plan: Plan) -> None:
    """Refuses to go on without a server that fits, where the plan samples with one."""
    if plan.config.rollout.backend == "vllm-server":
        from grpo.core.rollout.server.capabilities import servers_of
        from grpo.core.rollout.server.client import fitting_server_state

        for url, wanted, command in servers_of(plan):
            fitting_server_state(url, wanted, command)


def unfit_servers(plan: Plan) -> list[str]:
    """Returns what would keep a run with this plan from starting: a server that is missing, or does not fit."""
    try:
        refuse_unfit_server(plan)
    except UsageError as error:
        return [f"as it is now, the run would not start: {error}"]
    return []


def refuse_impossible_partial(config: RunConfig, processes: int) -> None:
    """Refuses to carry rollouts from step to step where that would be wrong."""
    if not config.rollout.partial:
        return
    wrong = {
        f"--ahead {config.rollout.ahead}": (
            config.rollout.ahead > 0,
            "a batch ahead is sampled by one version of the policy, a partial rollout by several",
        ),
        "rollout.refill": (config.rollout.refill > 0, "a batch is filled up within its step"),
        "rollout.dynamic": (config.rollout.dynamic > 0, "a batch is filled up within its step"),
        f"loss.num_iterations={config.loss.num_iterations}": (
            config.loss.num_iterations > 1,
            "rollouts would be several steps older than they have to be",
        ),
        "train.head='trl'": (config.train.head == "trl", "only our head corrects for tokens of earlier steps"),
        "loss.rollout_correction='none'": (
            config.loss.rollout_correction == "none",
            "tokens of earlier steps need to be corrected",
        ),
        f"{processes} processes": (processes > 1, "each would have other groups whole at each step; use one"),
    }
    refuse_together(f"--partial {config.rollout.partial}", wrong)


def refuse_idle_partial(tokens: int, longest: int) -> None:
    """Refuses parts of `tokens` (0: whole rollouts) that hold a rollout of `longest`, the most sampled tokens."""
    if tokens >= longest and tokens:
        raise UsageError(
            f"--partial {tokens}: no rollout samples more than {longest} tokens, so each would be whole in its first "
            "step. Lower it, or leave it out."
        )
