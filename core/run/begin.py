"""Does the work before the first step of a run: connects processes, names the directory, loads the policy."""

from __future__ import annotations

import re
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from grpo.core.config.defaults import dtype_of
from grpo.core.config.schema import RunConfig
from grpo.core.config.setting import PluginRef
from grpo.core.display.progress import Progress
from grpo.core.env.episodes import hash_of
from grpo.core.plan import Plan
from grpo.core.planning.output import RUNS
from grpo.core.policy.weights import find_weights
from grpo.core.processes.group import connect, wait
from grpo.core.processes.rank import count, is_first
from grpo.core.processes.sharding import (
    asked_sharding,
    join,
    refuse_lost_sharding,
    refuse_unfit_sharding,
    settle_launcher,
)
from grpo.core.record.checkpoint import damage, seal
from grpo.core.record.run_dir import ORIGIN, Hold, RunDir, exclusive, remove_folder, write_json
from grpo.core.record.versions import installed_versions, weights_digest
from grpo.core.run.continuing import sharded_as
from grpo.core.train.stop import StopRequest
from grpo.plugins._spec.binding import Bound
from grpo.plugins._spec.spec_text import PYTHON, is_file
from grpo.plugins.host import Host

UNFIT = r"[^\w.+-]+"  # for the name of a folder


def connect_all(config: RunConfig) -> None:
    """Connects the processes, sharded as their launcher asked. Raises UsageError, or RunError if not all came."""
    sharding = asked_sharding()
    if sharding is None:
        connect(config.failures.wait_limit)
        return
    import torch

    dtype = dtype_of(config.train.dtype, config.model)
    refuse_unfit_sharding(sharding, dtype, gpu=torch.cuda.is_available())
    connect(config.failures.wait_limit)
    refuse_lost_sharding(sharding, join(sharding))
    settle_launcher(sharding)


def absolute_paths(config: RunConfig) -> RunConfig:
    """Makes the relative paths of a configuration absolute, so that its run resumes from any folder."""

    def whole(text: str | None) -> str | None:
        return str(Path(text).expanduser().resolve()) if text and Path(text).expanduser().exists() else text

    def plugin(source: PluginRef) -> PluginRef:
        if not isinstance(source, str):
            return {**source, "name": plugin(str(source["name"]))} if "name" in source else source
        if source.startswith(PYTHON):
            return f"{PYTHON}{plugin(source.removeprefix(PYTHON))}"
        family, _, member = source.partition(":")
        if family == "trl" and is_file(member):
            return f"trl:{plugin(member)}"
        head, suffix, rest = source.partition(".toml" if ".toml" in source.partition(":")[0] else ".py")
        return f"{whole(head + suffix)}{rest}" if suffix and is_file(source) else source

    canaries = config.canaries.file
    return config.model_copy(
        update={
            "env": tuple(map(plugin, config.env)) if isinstance(config.env, tuple) else plugin(config.env),
            "rewards": tuple(map(plugin, config.rewards)),
            "env_rewards": {env: tuple(map(plugin, rewards)) for env, rewards in config.env_rewards.items()},
            "verifier": config.verifier and plugin(config.verifier),
            "loss": config.loss.model_copy(
                update={"type": plugin(config.loss.type), "advantage": plugin(config.loss.advantage)}
            ),
            "sampler": config.sampler and plugin(config.sampler),
            "agent": config.agent and plugin(config.agent),
            "model": whole(config.model),
            "dataset": whole(config.dataset),
            "canaries": config.canaries.model_copy(update={"file": canaries and Path(canaries).expanduser().resolve()}),
        }
    )


def unused_path(name: str) -> Path:
    """Returns where a run of that name goes: by its time, and with -2, -3, ... behind where that is taken."""
    path = RUNS / f"{time.strftime('%Y%m%d-%H%M%S')}-{re.sub(UNFIT, '-', name)}"
    unused, number = path, 1
    while unused.exists():
        number += 1
        unused = path.with_name(f"{path.name}-{number}")
    return unused


def with_own_base(plan: Plan, path: Path) -> Plan:
    """Copies the weights of another run here, merging adapters. Raises UsageError, or RunError if the disk is full."""
    from grpo.core.policy.export import export_weights

    weights = find_weights(plan.config.model)
    if weights.trained is None and weights.adapter is None:
        return plan
    base = RunDir(path).base
    if is_first():
        export_weights(weights, base, merge=True)
        origin = {"trained": plan.source.trained, "embedded": plan.source.embedded, "run": weights.name}
        write_json(base / ORIGIN, origin)
    return replace(
        plan,
        source=replace(plan.source, path=str(base.resolve()), tokenizer=None),
        config=plan.config.model_copy(update={"model": str(base.resolve())}),
    )


def open_stores(plan: Plan) -> None:
    """Opens the stores of trackers while nothing is loaded yet, by the first process."""
    if is_first() and plan.config.output.report_to:
        from grpo.core.track import trackers

        trackers.open_stores(plan.config.output)


def held(run_dir: RunDir) -> AbstractContextManager[Hold | None]:
    return exclusive(run_dir) if is_first() else nullcontext()


def versions_of(plan: Plan, host: Host) -> dict[str, Any]:
    """Returns what scores and gradients depend on: library versions, locked plugins, a hash of the training rows."""
    bound: list[Bound] = [
        *(part.env for part in plan.envs),
        *plan.rewards,
        *plan.verifiers,
        plan.loss,
        plan.advantage,
        *(plugin for plugin in (plan.sampler, plan.agent) if plugin is not None),
    ]
    return {
        "libraries": installed_versions(),
        "plugins": {f"{plugin.spec.kind} {plugin.name}": host.lock(plugin) for plugin in bound},
        "model": getattr(plan.model_config, "_commit_hash", None) or weights_digest(Path(plan.source.path)),
        "rows": hash_of(part.train for part in plan.envs),
        "processes": count(),
        "sharding": sharded_as(),
        "ordered": [part.name for part in plan.envs if part.env.ordered],
    }


def policy_of(plan: Plan, run_dir: RunDir, progress: Progress, stop: StopRequest) -> Any:
    """Loads the policy, after a warm-up that is done only once; None where the warm-up was stopped."""
    from transformers import set_seed

    from grpo.core.policy.load import load_policy

    train, lora = plan.config.train, plan.config.lora
    progress.loading("the model")
    set_seed(plan.config.seed)  # a fresh adapter is drawn at random
    if not train.warmup_steps:
        return load_policy(plan.source.path, train.dtype, lora)
    if is_first() and run_dir.warmup.is_dir() and (problem := damage(run_dir.warmup)):
        progress.warned(f"{run_dir.warmup} was damaged and is made again: {problem}.")
        remove_folder(run_dir.warmup)
    wait("a look at the warm-up")
    if not run_dir.warmup.is_dir():
        from grpo.core.train.callbacks import LossCallback
        from grpo.core.train.sft.warmup import warm_up

        model = load_policy(plan.source.path, train.dtype, lora)
        progress.loading("the worked answers")
        callback = LossCallback(lambda step, loss: progress.warmed(step, train.warmup_steps, loss), stop)
        with stop.finishing_steps():
            if not warm_up(
                model, plan.tokenizer, plan, run_dir.checkpoints, run_dir.warmup, [callback], progress.warned
            ):
                return None
        if is_first():
            seal(run_dir.warmup)
        wait("the warmed-up model")
    # Loaded afresh, so that a resumed run and the reference policy of the KL term start from the same weights.
    if lora.enabled:
        return load_policy(plan.source.path, train.dtype, lora, adapter=str(run_dir.warmup))
    return load_policy(str(run_dir.warmup), train.dtype, lora)
