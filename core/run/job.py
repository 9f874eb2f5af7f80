"""Runs one job, top to bottom: plan, load, warm up, train, record.

    dataset row → episode → completions → outcomes → advantages → gradients → a record of all of it

What comes before the first step is in `core/run/begin.py`, how runs end in `core/run/endings.py`, and what looks at
each batch and step in `core/run/parts.py`.
"""

from __future__ import annotations

import shlex
from contextlib import ExitStack, chdir, closing, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from grpo.core.check.gold.validate import doubts
from grpo.core.config.schema import RunConfig
from grpo.core.display.progress import Progress, Silent
from grpo.core.plan import Plan
from grpo.core.planning.agent import own_prompt
from grpo.core.planning.decide import make_plan
from grpo.core.planning.output import RUNS
from grpo.core.planning.rollout import unfit_servers
from grpo.core.policy.weights import find_weights, run_config
from grpo.core.processes.group import agreed, wait
from grpo.core.processes.loading import loading
from grpo.core.processes.rank import is_first
from grpo.core.processes.together import together
from grpo.core.record.checkpoint import checkpoint_step, last_checkpoint, lost_steps, rewind, seal
from grpo.core.record.disk import refuse_full_disk
from grpo.core.record.run_dir import (
    Hold,
    RunDir,
    create_run_dir,
    open_run_dir,
    read_json,
    remove_folder,
    started_in,
    write_json,
)
from grpo.core.record.versions import drift, other_releases, plugin_locks, silence_libraries
from grpo.core.run import begin, endings
from grpo.core.run.continuing import longer_notes, refuse_steps, resized
from grpo.core.run.endings import DONE, RunSummary
from grpo.core.scoring.process_state import ProcessState
from grpo.core.text.streams import limited_prints
from grpo.core.train.stop import StopRequest
from grpo.plugins.errors import UsageError
from grpo.plugins.events import RunEnded, RunStarted
from grpo.plugins.host import Host


def start(config: RunConfig, host: Host, progress: Progress) -> RunSummary:
    """Runs a configuration from the beginning. Raises UsageError, RunError."""
    stop = StopRequest()
    with stop.listening(), together():
        return _start(config, host, progress, stop)


def _start(config: RunConfig, host: Host, progress: Progress, stop: StopRequest) -> RunSummary:
    state = ProcessState()
    config = begin.absolute_paths(config)
    begin.connect_all(config)
    plan = make_plan(config, host)
    state.put_back()  # what the modules of plugins changed when they were imported
    if is_first():
        with limited_prints():
            plan = replace(plan, notes=(*plan.notes, *doubts(plan)))
    path = config.out or agreed(begin.unused_path(plan.name), "the run directory")
    refuse_full_disk(path, plan.disk_bytes)
    begin.open_stores(plan)
    note = find_weights(config.model).note
    plan = begin.with_own_base(plan, path)
    record = begin.versions_of(plan, host)
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
    with begin.held(run_dir) as hold, endings.explained(run_dir):
        return _Job(plan, host, run_dir, progress, stop, hold).execute()


def resume(
    path: Path, host: Host, progress: Progress, steps: int | None = None, server_url: str | None = None
) -> RunSummary:
    """Continues a run from its last whole checkpoint, or the beginning, in the folder in which it began, if there.

    `steps`: the new number of steps, also of a run that was over. `server_url`: the rollout servers; None: as before.
    Raises UsageError for no run directory, or a run that is over; RunError if it had to stop again.
    """
    run_dir, stop = open_run_dir(path), StopRequest()
    folder = started_in(run_dir)
    if folder is not None:
        run_dir = RunDir(run_dir.path.absolute())
    # Held before its checkpoints are looked at: whoever still runs there adds to them.
    place = chdir(folder) if folder else nullcontext()
    with place, stop.listening(), together(), begin.held(run_dir) as hold, endings.explained(run_dir):
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
    begin.connect_all(before)
    over = run_dir.model.is_dir() and endings.last_step(run_dir) >= (before.train.steps or 0)
    damaged: list[str] = []
    checkpoint = agreed(last_checkpoint(run_dir, damaged.append) if is_first() else None, "the last checkpoint")
    step = checkpoint_step(checkpoint) if checkpoint else 0
    if steps is not None:
        refuse_steps(before, steps, step, over=over, path=path)
    elif over:
        if agreed(endings.finish(run_dir, progress.warned) if is_first() else None, "how the run ended"):
            endings.observe(host, RunEnded(str(path), endings.last_step(run_dir), DONE))
            progress.ended(DONE, path, endings.last_step(run_dir))
            return endings.summary(run_dir, DONE)
        longer = f"grpo run --resume {shlex.quote(str(path))} --steps {2 * (before.train.steps or 0)}"
        raise UsageError(
            f"{path} is complete: it has all {before.train.steps} steps and its model. Make it longer with --steps, as "
            f"in: {longer}; or start a new run with --model."
        )
    train = {"steps": steps or before.train.steps}
    rollout = {"server_url": server_url or before.rollout.server_url}
    wanted = before.model_copy(
        update={"train": before.train.model_copy(update=train), "rollout": before.rollout.model_copy(update=rollout)}
    )
    recorded = read_json(run_dir.versions) or {}
    wanted, notes = resized(wanted, recorded, checkpoint)
    host.prefer(plugin_locks(recorded).values())
    try:
        plan = make_plan(wanted.model_copy(update={"out": path}), host, fresh=False)
    except UsageError as error:
        error.args = (f"{other_releases(recorded)}{error}",)
        raise
    remedy = "Free some space, or move the run to a larger disk and resume it there."
    refuse_full_disk(path, plan.disk_bytes // (plan.config.output.keep + 1), remedy=remedy)
    begin.open_stores(plan)
    changed = drift(recorded, begin.versions_of(plan, host))
    progress = progress if is_first() else Silent()
    progress.planned(
        plan,
        path,
        [f"resuming after step {step}" if step else "starting again: there is no complete checkpoint yet", *notes],
    )
    for line in damaged:
        progress.warned(f"{line} The run continues after step {step}.")
    if not step and endings.last_step(run_dir) > plan.config.output.save_every:
        made = f"{path} recorded {endings.last_step(run_dir)} steps, and none of its checkpoints is left"
        progress.warned(f"{made}. The steps are done again, and their record is made anew.")
    for line in lost_steps(run_dir, step, before.loss.num_iterations):
        progress.warned(line)
    if steps is not None:
        for line in longer_notes(before, plan, step):
            progress.warned(line)
    if is_first() and (steps, server_url) != (None, None):
        endings.set_state(run_dir, "running", step)  # first: killed from here on, it is no run that is done
        parts = {"train": {**settings["train"], **train}, "rollout": {**settings["rollout"], **rollout}}
        write_json(run_dir.config, {**settings, **parts})
    if is_first():
        remove_folder(run_dir.model)  # of a run that was over, with fewer steps
    for line in changed:
        progress.warned(f"since the run started, {line}. Its metrics may not continue smoothly.")
    return _Job(plan, host, run_dir, progress, stop, hold, checkpoint).execute()


@dataclass(frozen=True, slots=True)
class _Job:
    plan: Plan
    host: Host
    run_dir: RunDir
    progress: Progress
    stop: StopRequest
    hold: Hold | None  # of the first process
    checkpoint: Path | None = None  # to go on from

    def execute(self) -> RunSummary:
        step = checkpoint_step(self.checkpoint) if self.checkpoint else 0
        try:
            if is_first():
                rewind(self.run_dir, step if self.checkpoint else -1)
            endings.set_state(self.run_dir, "running", step)
            endings.observe(self.host, RunStarted(str(self.run_dir.path), self.plan.config.model_dump(mode="json")))
            with limited_prints():
                status = self._train()
        except BaseException as error:
            endings.broken_off(self.run_dir, error, self.host, self.progress)
            raise
        endings.ended(self.run_dir, status, self.host, self.progress, self.plan)
        wait("the end of the run")
        self.stop.over()
        return endings.summary(self.run_dir, status)

    def _train(self) -> str:
        plan, run_dir, progress, stop = self.plan, self.run_dir, self.progress, self.stop
        for note in plan.notes:
            progress.warned(note)
        progress.loading("libraries")
        with loading():
            silence_libraries()
            from grpo.core.policy.load import end_ids
            from grpo.core.rollout.open import open_agents, open_rollouts
            from grpo.core.rollout.types import context_length
            from grpo.core.run.held_out import HeldOut
            from grpo.core.run.parts import Parts
            from grpo.core.run.scoring import Scoring
            from grpo.core.train.callbacks import StartCallback, StepCallback
            from grpo.core.train.trainer import PolicyTrainer

        model = begin.policy_of(plan, run_dir, progress, stop)
        if model is None:
            return "interrupted"
        if plan.config.rollout.backend != "hf":
            progress.loading("the rollout engine")
        with (
            closing(open_rollouts(plan, model, progress.warned)) as rollouts,
            open_agents(
                plan.agent,
                [part.env for part in plan.envs],
                plan.config.rollout,
                plan.tokenizer,
                context_length(plan.model_config),
                progress.warned,
                [str(run_dir.path.resolve())],
            ) as agents,
            closing(Scoring(plan, progress.warned, str(run_dir.path))) as scoring,
            closing(Parts(plan, self.host, run_dir, progress, self.hold, scoring)) as parts,
        ):
            held_out = HeldOut(
                plan,
                plan.tokenizer,
                end_ids(plan.tokenizer, model),
                scoring.judge_held_out,
                progress.evaluated,
                progress.evaluating,
                agents,
            )
            steps = StepCallback(
                on_metrics=parts.on_step,
                stop=stop,
                boundary=plan.config.loss.num_iterations,
                keep=plan.config.output.keep,
                unsaved=parts.unsaved,
            )
            trainer = PolicyTrainer(
                model=model,
                tokenizer=plan.tokenizer,
                plan=plan,
                rollouts=rollouts,
                output_dir=run_dir.checkpoints,
                scoring=scoring,
                received=parts.on_batch,
                trained=parts.trained,
                between_steps=held_out.between_steps,
                callbacks=[steps, *parts.callbacks],
                agents=agents,
            )

            def ready() -> None:
                trainer.refuse_unsharded()
                if self.checkpoint is None:
                    parts.started(partial(held_out.measure, 0, trainer.rollouts))
                if stop.asked_of_any():  # while somebody else's code swallowed the exception
                    raise KeyboardInterrupt
                finishing.enter_context(stop.finishing_steps())

            trainer.add_callback(StartCallback(ready))
            with ExitStack() as finishing:
                with closing(trainer.sampler):
                    if self.checkpoint is not None:
                        trainer.prompts.load(self.checkpoint)
                        trainer.sampler.load(self.checkpoint)
                    trainer.train(resume_from_checkpoint=str(self.checkpoint) if self.checkpoint else None)
                if trainer.state.global_step < trainer.state.max_steps:  # as all processes decided together
                    return "interrupted"
                if is_first():
                    endings.draw_curves(run_dir, progress.warned)
                trainer.save_final(run_dir.model)
                if is_first():
                    seal(run_dir.model)
            wait("the final model")
        return DONE


def dry_run(config: RunConfig, host: Host, progress: Progress) -> None:
    """Plans a run, calls its rewards, and tells what would happen. Raises UsageError if it cannot start."""
    plan = make_plan(config, host, served=False)
    refuse_full_disk(plan.config.out or RUNS, plan.disk_bytes)
    with limited_prints():
        notes = [*doubts(plan)]
    unknown = [] if config.agent is None else [own_prompt(config.agent)]
    progress.planned(plan, None, [*unknown, "dry run: nothing was trained"])
    for note in (*plan.notes, *notes, *unfit_servers(plan)):
        progress.warned(note)
