"""The main job, top to bottom: plan, load, warm up, train, record.

    dataset row → episode → completions → outcomes → advantages → gradients → a record of all of it

In: a configuration and the host of plugins. Out: a run directory that holds a trained policy and everything that
led to it. Nothing here draws, parses or reads a configuration file.
"""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpo.core.check.gold.validate import doubts
from grpo.core.config.defaults import dtype_of
from grpo.core.config.schema import RunConfig
from grpo.core.env.episodes import hash_of
from grpo.core.plan import Plan
from grpo.core.planning.decide import make_plan
from grpo.core.policy.weights import find_weights, run_config
from grpo.core.processes.group import agreed, connect, wait
from grpo.core.processes.rank import count, is_first
from grpo.core.processes.sharding import (
    asked_sharding,
    join,
    refuse_lost_sharding,
    refuse_unfit_sharding,
    settle_launcher,
)
from grpo.core.processes.together import INTERRUPTED, together
from grpo.core.processes.watch import PeerEnded
from grpo.core.record.checkpoint import checkpoint_step, damage, last_checkpoint, newest_step, rewind, seal
from grpo.core.record.disk import refuse_full_disk
from grpo.core.record.run_dir import (
    ORIGIN,
    Hold,
    RunDir,
    create_run_dir,
    exclusive,
    is_run,
    open_run_dir,
    read_json,
    read_metrics,
    write_json,
)
from grpo.core.record.trained import TrainedRow
from grpo.core.record.versions import drift, hush_libraries, installed_versions
from grpo.core.run.advice import advise, idle_processors
from grpo.core.run.finish import DONE, draw_curves, finish, write_state
from grpo.core.run.longer import longer_notes, refuse_steps
from grpo.core.run.paths import absolute_paths, unused_path
from grpo.core.run.progress import Progress, ShowsHowFar, Silent
from grpo.core.run.regrouped import regrouped, sharded_as
from grpo.core.run.timeline import timeline
from grpo.core.run.upkeep import Upkeep
from grpo.core.scoring.executors import processors
from grpo.core.scoring.process_state import ProcessState
from grpo.core.text.streams import limited_prints
from grpo.core.train.stop import StopRequest
from grpo.plugins._binding import BoundAdvantage, BoundEnv, BoundLoss, BoundReward, BoundSampler, BoundVerifier
from grpo.plugins.errors import GrpoError, RunError, UsageError
from grpo.plugins.events import RunEnded, RunStarted
from grpo.plugins.host import Host

if TYPE_CHECKING:
    from grpo.core.train.batch import Batch

DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
FOLDER_ERRORS = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EIO, errno.ESTALE, errno.ENOENT)
DISK_MESSAGES = (  # of libraries that keep no errno; the last one is what torch.save makes of a short write
    *(os.strerror(number) for number in (*DISK_ERRORS, errno.EROFS)),
    "inline_container",
)
DISK_FLOOR = 16 * 2**20  # bytes; with less than this free, a failed write is blamed on the full disk


@dataclass(frozen=True, slots=True)
class RunSummary:
    """How a run ended.

    Attributes:
        path: the run directory.
        status: "done" or "interrupted".
        step: the last step.
        before, after: held-out accuracy, None where it was not measured.
    """

    path: Path
    status: str
    step: int
    before: float | None
    after: float | None


def start(config: RunConfig, host: Host, progress: Progress) -> RunSummary:
    """Runs a configuration from the beginning.

    Raises:
        UsageError: it cannot start; nothing was loaded or written.
        RunError: it had to stop; the run directory resumes.
    """
    stop = StopRequest()
    with stop.listening(), together():
        return _start(config, host, progress, stop)


def _start(config: RunConfig, host: Host, progress: Progress, stop: StopRequest) -> RunSummary:
    state = ProcessState()
    config = absolute_paths(config)
    _connect(config)
    plan = make_plan(config, host)
    state.put_back()  # what the modules of plugins changed when they were imported
    if is_first():
        with limited_prints():
            plan = replace(plan, notes=(*plan.notes, *doubts(plan)))
    path = config.out or agreed(unused_path(plan.name), "the run directory")
    refuse_full_disk(path, plan.disk_bytes)
    _open_stores(plan)
    note = find_weights(config.model).note
    plan = _with_own_base(plan, path)
    record = _versions(plan, host)
    settings = plan.config.model_copy(update={"out": path}).model_dump(mode="json")
    wait("a look at the run directory")  # until every process has seen that it is free
    if is_first():
        run_dir = create_run_dir(path, settings, record)
    wait("the run directory")
    run_dir = RunDir(path)
    progress = progress if is_first() else Silent()
    progress.planned(plan, path, [])
    if note is not None:
        progress.warned(note)
    with _held(run_dir) as hold:
        return _execute(plan, host, run_dir, progress, stop, hold, checkpoint=None)


def _with_own_base(plan: Plan, path: Path) -> Plan:
    """Copies the weights of another run, which may go on, into the new run's directory; an adapter is merged into them.

    An adapter that no run here has made is merged in the same way.

    Raises:
        UsageError: they cannot be loaded, or the adapter is of a kind that cannot be merged.
        RunError: the disk is full.
    """
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


def resume(
    path: Path, host: Host, progress: Progress, steps: int | None = None, server_url: str | None = None
) -> RunSummary:
    """Continues a run from its last whole checkpoint, or from the beginning when it has none.

    Args:
        path: the run directory.
        host: the plugins.
        progress: told what happens.
        steps: how many steps the run is to have in the end, also one that was over; None: as many as it was asked for.
        server_url: where its rollout servers are now; None: where they were.

    Raises:
        UsageError: it is not a run directory, or the run is over.
        RunError: it had to stop again.
    """
    run_dir, stop = open_run_dir(path), StopRequest()
    # Held before its checkpoints are looked at: whoever still runs there adds to them.
    with stop.listening(), together(), _held(run_dir) as hold:
        return _resume(run_dir, host, progress, stop, hold, steps, server_url)


def _resume(
    run_dir: RunDir,
    host: Host,
    progress: Progress,
    stop: StopRequest,
    hold: Hold | None,
    steps: int | None,
    server_url: str | None,
) -> RunSummary:
    path, settings = run_dir.path, read_json(run_dir.config)
    if not isinstance(settings, dict):
        raise UsageError(f"{run_dir.config} was damaged: it holds no settings. Fix it, or start a new run.")
    before = run_config(run_dir)
    _connect(before)
    over = run_dir.model.is_dir() and _last_step(run_dir) >= (before.train.steps or 0)
    damaged: list[str] = []
    checkpoint = agreed(last_checkpoint(run_dir, damaged.append) if is_first() else None, "the last checkpoint")
    step = checkpoint_step(checkpoint) if checkpoint else 0
    if steps is not None:
        refuse_steps(before, steps, step, over=over, path=path)
    elif over:
        if agreed(finish(run_dir, progress.warned) if is_first() else None, "how the run ended"):
            _observe(host, RunEnded(str(path), _last_step(run_dir), DONE))
            progress.ended(DONE, path, _last_step(run_dir))
            return _summary(run_dir, DONE)
        raise UsageError(
            f"{path} is complete: it has all {before.train.steps} steps and its model. Make it longer with --steps, as "
            f"in: grpo run --resume {path} --steps {2 * (before.train.steps or 0)}; or start a new run with --model."
        )
    train = {"steps": steps or before.train.steps}
    rollout = {"server_url": server_url or before.rollout.server_url}
    wanted = before.model_copy(
        update={
            "train": before.train.model_copy(update=train),
            "rollout": before.rollout.model_copy(update=rollout),
        }
    )
    recorded = read_json(run_dir.versions) or {}
    wanted, notes = regrouped(wanted, recorded, checkpoint)
    plan = make_plan(wanted.model_copy(update={"out": path}), host, fresh=False)
    refuse_full_disk(path, plan.disk_bytes // (plan.config.output.keep + 1))
    _open_stores(plan)
    changed = drift(recorded, _versions(plan, host))
    progress = progress if is_first() else Silent()
    progress.planned(
        plan,
        path,
        [f"resuming after step {step}" if step else "starting again: there is no complete checkpoint yet", *notes],
    )
    for line in damaged:
        progress.warned(f"{line} The run continues after step {step}.")
    if steps is not None:
        for line in longer_notes(before, plan, step):
            progress.warned(line)
    if is_first() and (steps, server_url) != (None, None):
        parts = {"train": {**settings["train"], **train}, "rollout": {**settings["rollout"], **rollout}}
        write_json(run_dir.config, {**settings, **parts})
    if is_first():
        shutil.rmtree(run_dir.model, ignore_errors=True)  # of a run that was over, with fewer steps
    for line in changed:
        progress.warned(f"since the run started, {line}. Its metrics may not continue smoothly.")
    return _execute(plan, host, run_dir, progress, stop, hold, checkpoint)


def _open_stores(plan: Plan) -> None:
    """Opens the stores of trackers while nothing is loaded yet, by the first process."""
    if is_first() and plan.config.output.report_to:
        from grpo.core.train.trackers import open_stores

        open_stores(plan.config.output)


def _held(run_dir: RunDir) -> AbstractContextManager[Hold | None]:
    """Holds the run directory, by its first process."""
    return exclusive(run_dir) if is_first() else nullcontext()


def _execute(
    plan: Plan,
    host: Host,
    run_dir: RunDir,
    progress: Progress,
    stop: StopRequest,
    hold: Hold | None,
    checkpoint: Path | None,
) -> RunSummary:
    """Trains, and leaves the run directory saying how the run ended."""
    try:
        with _explained(run_dir):
            if is_first():
                rewind(run_dir, checkpoint_step(checkpoint) if checkpoint else -1)
            _set_state(run_dir, "running", checkpoint_step(checkpoint) if checkpoint else 0)
            _observe(host, RunStarted(str(run_dir.path), plan.config.model_dump(mode="json")))
            with limited_prints():
                status = _train(plan, host, run_dir, progress, stop, hold, checkpoint)
    except BaseException as error:
        how = "interrupted" if _asked(error) else "failed"
        step = _last_step(run_dir)
        _observe(host, RunEnded(str(run_dir.path), step, how))
        with suppress(OSError):  # where even this cannot be written, the free lock says that nobody runs here any more
            _set_state(run_dir, how, step)
        if (lost := _lost(run_dir, step)) is not None:
            progress.warned(lost)
        if how == "interrupted":
            progress.ended(how, run_dir.path, step)
        raise
    step = _last_step(run_dir)
    _set_state(run_dir, status, step)
    _observe(host, RunEnded(str(run_dir.path), step, status))
    progress.ended(status, run_dir.path, step)
    if status == DONE and is_first():
        rows = read_metrics(run_dir)
        spent, times = timeline(rows, whole=True), timeline(rows)
        advice = advise(times, plan.config, plan.rewards, processors(), idle_processors())
        progress.timed(spent.text(), spent.tokens(), advice[0].text() if advice else None)
    wait("the end of the run")
    stop.over()
    return _summary(run_dir, status)


def _summary(run_dir: RunDir, status: str) -> RunSummary:
    held_out = [row["held_out/accuracy"] for row in read_metrics(run_dir) if "held_out/accuracy" in row]
    return RunSummary(
        path=run_dir.path,
        status=status,
        step=_last_step(run_dir),
        before=held_out[0] if held_out else None,
        after=held_out[-1] if len(held_out) > 1 else None,
    )


def _train(
    plan: Plan,
    host: Host,
    run_dir: RunDir,
    progress: Progress,
    stop: StopRequest,
    hold: Hold | None,
    checkpoint: Path | None,
) -> str:
    """The pipeline itself; returns "done" or "interrupted"."""
    for note in plan.notes:
        progress.warned(note)
    progress.loading("libraries")
    hush_libraries()
    from grpo.core.policy.load import end_ids
    from grpo.core.rollout.open import open_rollouts
    from grpo.core.run.alarm import RunAlarm
    from grpo.core.run.books import Books
    from grpo.core.run.canaries import RunCanaries
    from grpo.core.run.held_out import HeldOut
    from grpo.core.run.scoring import Scoring
    from grpo.core.run.signal import RunSignal
    from grpo.core.train.batch import refuse_overflow, stop_on_failures
    from grpo.core.train.callbacks import StartCallback, StepCallback
    from grpo.core.train.trackers import Trackers
    from grpo.core.train.trainer import PolicyTrainer

    tokenizer = plan.tokenizer
    model = _policy(plan, tokenizer, run_dir, progress, stop)
    if model is None:
        return "interrupted"
    if plan.config.rollout.backend != "hf":
        progress.loading("the rollout engine")
    rollouts = open_rollouts(plan, model, progress.warned)
    with closing(rollouts), ExitStack() as charts, Scoring(plan, progress.warned) as scoring:
        upkeep = Upkeep(run_dir, hold, progress.warned) if hold is not None else None
        books = Books(plan, host, run_dir, progress)
        alarm = RunAlarm(plan, run_dir, progress)
        signal = RunSignal(plan, run_dir)
        trackers = Trackers(plan.config.output, run_dir, charts)
        spans = None
        if "otel" in plan.config.output.report_to:
            from grpo.core.run.spans import StepSpans

            spans = StepSpans(plan.config.output, run_dir, progress.warned, charts)
        canaries = RunCanaries(plan, run_dir, scoring, progress) if plan.canaries else None
        held_out = HeldOut(
            plan,
            tokenizer,
            end_ids(tokenizer, model),
            scoring.judge_held_out,
            progress.evaluated,
            progress.evaluating if isinstance(progress, ShowsHowFar) else None,
        )

        def unsaved() -> bool:
            if upkeep is not None:
                upkeep.look()
            return upkeep is not None and upkeep.unsaved

        def received(batch: Batch) -> dict[str, float]:
            unsaved()  # there is a directory to write to
            metrics: dict[str, float] = {}
            if is_first():
                right = scoring.judge(batch.completions)
                rows, metrics = books.received(batch, right)
                rung = alarm.received(batch, right)
                if spans is not None:
                    spans.alarms(batch.step, rung)
                trackers.rollouts(batch.step, rows)
            wait("the record of the batch")  # what ends the run is on record before any process leaves
            alarm.stop()
            scoring.stop_on_faults()
            stop_on_failures(batch, plan.rewards, plan.config.failures.stop_share)
            signal.stop(batch)
            refuse_overflow(batch, plan.rewards, plan.advantage)
            return metrics | (canaries.received(batch.step) if canaries else {})

        def trained(step: int, rows: Sequence[TrainedRow]) -> None:
            if is_first():
                books.trained(step, rows)

        trainer = PolicyTrainer(
            model=model,
            tokenizer=tokenizer,
            plan=plan,
            rollouts=rollouts,
            output_dir=run_dir.checkpoints,
            scoring=scoring,
            received=received,
            trained=trained,
            between_steps=held_out.between_steps,
            callbacks=[
                StepCallback(
                    on_metrics=books.step_ended,
                    stop=stop,
                    boundary=plan.config.loss.num_iterations,
                    keep=plan.config.output.keep,
                    unsaved=unsaved,
                ),
                *trackers.callbacks,
                *([] if spans is None else [spans]),
            ],
        )
        with ExitStack() as steps:

            def begin() -> None:
                trainer.refuse_unsharded()
                if checkpoint is None:
                    began = time.perf_counter()
                    measured = held_out.measure(0, trainer.rollouts)
                    if is_first() and measured:
                        books.started({**measured, "time/held_out": time.perf_counter() - began})
                if stop.asked_of_any():  # while somebody else's code swallowed the exception
                    raise KeyboardInterrupt
                steps.enter_context(stop.finishing_steps())

            trainer.add_callback(StartCallback(begin))
            with closing(trainer.sampler):
                if checkpoint is not None:
                    trainer.prompts.load(checkpoint)
                    trainer.sampler.load(checkpoint)
                trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
            if trainer.state.global_step < trainer.state.max_steps:  # as all processes decided together
                return "interrupted"
            if is_first():
                draw_curves(run_dir, progress.warned)
            trainer.save_final(run_dir.model)
            if is_first():
                seal(run_dir.model)
        wait("the final model")
    return DONE


def _policy(plan: Plan, tokenizer: Any, run_dir: RunDir, progress: Progress, stop: StopRequest) -> Any:
    """Loads the policy, after the supervised warm-up where one was asked for; the warm-up is done only once.

    Returns:
        The model, or None where the warm-up was stopped: a run that is resumed begins it again.
    """
    from transformers import set_seed

    from grpo.core.policy.load import load_policy

    train, lora = plan.config.train, plan.config.lora
    progress.loading("the model")
    set_seed(plan.config.seed)  # a fresh adapter is drawn at random
    if not train.warmup_steps:
        return load_policy(plan.source.path, train.dtype, lora)
    if is_first() and run_dir.warmup.is_dir() and (problem := damage(run_dir.warmup)):
        progress.warned(f"{run_dir.warmup} was damaged and is made again: {problem}.")
        shutil.rmtree(run_dir.warmup)
    wait("a look at the warm-up")
    if not run_dir.warmup.is_dir():
        from grpo.core.train.callbacks import LossCallback
        from grpo.core.train.warmup import warm_up

        model = load_policy(plan.source.path, train.dtype, lora)
        progress.loading("the worked answers")
        told = LossCallback(lambda step, loss: progress.warmed(step, train.warmup_steps, loss), stop)
        with stop.finishing_steps():
            if not warm_up(model, tokenizer, plan, run_dir.checkpoints, run_dir.warmup, [told], progress.warned):
                return None
        if is_first():
            seal(run_dir.warmup)
        wait("the warmed-up model")
    # Loaded afresh, so that a resumed run and the reference policy of the KL term start from the same weights.
    if lora.enabled:
        return load_policy(plan.source.path, train.dtype, lora, adapter=str(run_dir.warmup))
    return load_policy(str(run_dir.warmup), train.dtype, lora)


def _versions(plan: Plan, host: Host) -> dict[str, Any]:
    """What scores and gradients depend on: library versions, locked plugins, a hash of the training rows."""
    bound: list[BoundEnv | BoundReward | BoundVerifier | BoundLoss | BoundAdvantage | BoundSampler] = [
        *(part.env for part in plan.envs),
        *plan.rewards,
        *plan.verifiers,
        plan.loss,
        plan.advantage,
        *([] if plan.sampler is None else [plan.sampler]),
    ]
    return {
        "libraries": installed_versions(),
        "plugins": {f"{plugin.spec.kind} {plugin.name}": host.lock(plugin) for plugin in bound},
        "rows": hash_of(part.train for part in plan.envs),
        "processes": count(),
        "sharding": sharded_as(),
        "ordered": [part.name for part in plan.envs if part.env.ordered],
    }


def _set_state(run_dir: RunDir, status: str, step: int) -> None:
    if is_first():
        write_state(run_dir, status, step)


def _lost(run_dir: RunDir, step: int) -> str | None:
    """Says which steps a run that stops here has to do again, or returns None."""
    kept = newest_step(run_dir)
    if step <= kept or not is_first():
        return None
    which = f"step {step}" if step == kept + 1 else f"steps {kept + 1} to {step}"
    since = f"the last complete checkpoint is of step {kept}" if kept else "there is no complete checkpoint yet"
    return f"{which} will be done again when the run resumes: {since}."


def _last_step(run_dir: RunDir) -> int:
    rows = read_metrics(run_dir)
    return int(rows[-1]["step"]) if rows else 0


@contextmanager
def _explained(run_dir: RunDir) -> Iterator[None]:
    """Turns the two failures that a machine causes, a full disk and full memory, into errors that say so."""
    try:
        yield
    except GrpoError:
        raise
    except Exception as error:
        path, resume_with = run_dir.path, f"then continue with: grpo run --resume {run_dir.path}"
        if not is_run(path):
            raise RunError(
                f"the run directory {path} was removed, or cannot be reached any more: {error}. What it held is lost "
                "unless it comes back; start the run again."
            ) from error
        free = shutil.disk_usage(path).free
        blamed = getattr(error, "errno", None) in DISK_ERRORS or any(text in str(error) for text in DISK_MESSAGES)
        if blamed or free < DISK_FLOOR:
            raise RunError(
                f"cannot write {path}: {error} ({free / 2**20:.0f} MiB free). Free some space, {resume_with}"
            ) from error
        inside = str(getattr(error, "filename", None) or "").startswith(str(path))
        if (inside and getattr(error, "errno", None) in FOLDER_ERRORS) or not os.access(path, os.W_OK | os.X_OK):
            raise RunError(f"cannot write in {path}: {error}. Make it writable again, {resume_with}") from error
        if type(error).__name__ == "OutOfMemoryError":
            raise RunError(
                f"the GPU's memory is full: {str(error).splitlines()[0]} Lower train.micro_batch_size or "
                f"rollout.batch_size, or set --checkpointing full or offload, {resume_with}"
            ) from error
        raise


def _asked(error: BaseException) -> bool:
    """Whether a run ends because somebody wanted it to, and told this process or another."""
    return isinstance(error, KeyboardInterrupt) or (isinstance(error, PeerEnded) and error.end.code == INTERRUPTED)


def _observe(host: Host, event: RunStarted | RunEnded) -> None:
    """Tells observers, once for all processes."""
    if is_first():
        host.observe(event)


def _connect(config: RunConfig) -> None:
    """Connects the processes of a run, sharded as their launcher asked for; refuses what would not be.

    Raises:
        UsageError: the sharding cannot work, or would not happen.
        RunError: not all processes came.
    """
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
