"""Runs `grpo eval`: measures accuracy, pass@k and mean rewards with 95% intervals."""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from grpo.core.cli import options
from grpo.core.cli.bar import progress_bar
from grpo.core.cli.flags import table_of
from grpo.core.scoring.tally import verdict_counts
from grpo.core.text.printable import aligned, counted, encodable, printable
from grpo.plugins.errors import RunError, UsageError
from grpo.plugins.host import Host

if TYPE_CHECKING:
    from grpo.core.measure.model import EvaluationPlan, Measurement
    from grpo.core.text.stats import Estimate
    from grpo.plugins._spec.binding import BoundReward, BoundVerifier


@click.command(name="eval")
@click.option(
    "--env",
    "envs",
    metavar="SPEC",
    multiple=True,
    help="Environment, for example gsm8k; repeat for several. Default: the run's.",
)
@click.option("--model", metavar="NAME", help="Hub id, folder or run directory. Default: the embedded model.")
@click.option("--adapter", metavar="NAME", help="PEFT folder or hub id to apply on top.")
@click.option(
    "-n", "samples", type=options.AT_LEAST_ONE, default=1, help="Completions per problem, for pass@k. Default: 1."
)
@click.option("--split", type=click.Choice(["test", "train"]), default="test", help="Split of the rows. Default: test.")
@click.option(
    "--size",
    type=options.AT_LEAST_ONE,
    help="Use only the first N problems. Default: all; 200 where the environment makes its own.",
)
@click.option(
    "--reward",
    "rewards",
    metavar="SPEC",
    multiple=True,
    help="Reward; repeat for several. Default: the run's or environment's.",
)
@click.option("--agent", metavar="SPEC", help="Agent program that answers the tasks. Default: the run's.")
@click.option("--session", metavar="SPEC", help="Session in which episodes run. Default: the environment's.")
@click.option("--dataset", metavar="FILE|ID", help="Rows for the environment: a file or a hub dataset.")
@options.template_variables
@options.temperature
@click.option(
    "--max-completion-length",
    "max_tokens",
    type=options.AT_LEAST_ONE,
    help="Longest completion, in tokens. Default: the run's; 96 for the embedded model, 512 else.",
)
@click.option("--batch-size", type=options.AT_LEAST_ONE, default=128, help="Completions decoded at once. Default: 128.")
@options.seed
@click.option("--output", type=click.Path(path_type=Path, dir_okay=False), help="Write every completion as JSON lines.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def evaluate(
    model: str | None,
    adapter: str | None,
    envs: tuple[str, ...],
    variables: tuple[str, ...],
    output: Path | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Measure a model on an environment, without training.

    With a run directory as --model, its environment, rewards, agent, session, dataset and lengths are the defaults;
    --env replaces all but the lengths. Several environments are measured one after the other, and --json then prints
    a list. The name of one of a run's environments selects that one.
    """
    from grpo.core.measure.model import Choices, for_each_env, measure, plan_evaluation, recorded
    from grpo.core.policy.weights import find_weights
    from grpo.core.record.run_dir import started_in

    if output is not None:
        refuse_unwritable_file(output)
    weights, host = find_weights(model, adapter), Host.discover()
    named = any((envs, *(given[name] for name in ("rewards", "agent", "session", "dataset"))))
    folder = None if named or weights.run is None else started_in(weights.run)
    if folder is not None:  # for the relative paths of the run's settings
        output = output and output.absolute()
        weights = find_weights(str(Path(model or "").absolute()), adapter)
        click.get_current_context().with_resource(contextlib.chdir(folder))
    with contextlib.redirect_stdout(sys.stderr):  # what environments print is no result
        asked = Choices(**given, chat_template_kwargs=table_of("--chat-template-kwargs", variables))
        choices = for_each_env(weights, host, asked, envs)
        plans = [plan_evaluation(weights, host, chosen) for chosen in choices]
    notes = [
        weights.note,
        *(plan.env.spec.note for plan in plans),
        *(note for plan in plans for note in plan.notes),
        *changes(plans, host),
    ]
    for note in dict.fromkeys(filter(None, notes)):
        click.echo(f"note: {note}", err=True)
    measured: list[tuple[EvaluationPlan, Measurement]] = []
    for plan in plans:
        with progress_bar() as bar, contextlib.redirect_stdout(sys.stderr):
            task = bar.add_task("loading", total=len(plan.episodes) * plan.choices.samples)
            loaded, sampled = partial(bar.update, task, description="sampling"), partial(bar.advance, task)
            measured.append((plan, measure(plan, loaded=loaded, sampled=sampled)))
        if not as_json:
            click.echo("\n".join([*([""] if len(measured) > 1 else []), *report(*measured[-1])]))
    if as_json:
        summaries = [summary(*each) for each in measured]
        click.echo(json.dumps(summaries if len(plans) > 1 else summaries[0], indent=2))
    if output is not None:
        _write(output, [row for plan, measurement in measured for row in recorded(plan, measurement.evaluation)])
    for _, measurement in measured:
        for name, traceback in measurement.first_failure.items():
            warning = (
                f"warning: '{name}' failed; the completions that it failed on are excluded. The first:\n{traceback}"
            )
            click.echo(printable(warning), err=True)
        if failures := measurement.evaluation.env_failures:
            count = len(measurement.evaluation.completions)
            warning = f"warning: {len(failures)} of {count} rollouts failed and are left out. The first: {failures[0]}"
            click.echo(printable(warning), err=True)
    for plan, measurement in measured:
        if len(measurement.evaluation.env_failures) == len(measurement.evaluation.completions):
            raise RunError(f"every rollout of {plan.env.name} failed in the environment, so there is no result.")
        verdicts = measurement.evaluation.verdicts
        if verdicts and all(judgement.kind == "failure" for judgement in verdicts):
            raise RunError(f"the verifier of {plan.env.name} failed on every completion, so accuracy is unknown.")


def changes(plans: Sequence[EvaluationPlan], host: Host) -> Iterator[str]:
    """Yields how what scores and judges differs from what the run was trained with, of which the weights are."""
    from grpo.core.record.run_dir import read_json
    from grpo.core.record.versions import plugin_locks
    from grpo.plugins._host.lock import drift

    for plan in plans:
        if plan.weights.run is None:
            continue
        before = plugin_locks(read_json(plan.weights.run.versions))
        used: list[BoundReward | BoundVerifier] = [*plan.rewards, *([plan.verifier] if plan.verifier else [])]
        for bound in used:
            record = before.get(f"{bound.spec.kind} {bound.name}")
            for line in drift(record, host.lock(bound)) if record else ():
                yield f"since the run, {line}. Its figures and these cannot be compared."


def refuse_unwritable_file(file: Path) -> None:
    """Refuses an output file whose folder does not exist or may not be written to."""
    if not file.parent.is_dir():
        raise UsageError(f"--output {file}: there is no folder {file.parent}. Make it first.")
    if not os.access(file.parent, os.W_OK | os.X_OK):
        folder = file.parent.absolute()
        raise UsageError(f"--output {file}: cannot write in {folder}. Choose a folder that you may write to.")


def summary(plan: EvaluationPlan, measurement: Measurement) -> dict[str, Any]:
    """Returns what `grpo eval --json` prints."""
    evaluation = measurement.evaluation
    lengths = [len(completion.token_ids) for completion in evaluation.completions]
    return {
        "model": plan.weights.name,
        "step": plan.weights.trained.step if plan.weights.trained else None,
        "env": plan.env.name,
        "split": plan.choices.split,
        "problems": len(plan.episodes),
        "questions": _questions(plan),
        "samples": plan.choices.samples,
        "temperature": plan.temperature,
        "seed": plan.choices.seed,
        "max_completion_length": plan.rollout.max_completion_length,
        "accuracy": _estimate(evaluation.accuracy) if evaluation.accuracy else None,
        "verdicts": verdict_counts(evaluation.verdicts) if plan.verifier else None,
        "pass_at_k": {str(k): _estimate(estimate) for k, estimate in evaluation.pass_at_k.items()},
        "rewards": {
            name: {**_estimate(estimate), **outcome_counts(measurement, name)}
            for name, estimate in evaluation.rewards.items()
        },
        "mean_tokens": sum(lengths) / len(lengths),
        "cut": sum(completion.finish_reason == "length" for completion in evaluation.completions),
        "failed_rollouts": len(evaluation.env_failures),
        "seconds": round(measurement.seconds, 2),
    }


def report(plan: EvaluationPlan, measurement: Measurement) -> list[str]:
    evaluation = measurement.evaluation
    how = "greedy" if plan.temperature == 0 else f"temperature {plan.temperature:g}, seed {plan.choices.seed}"
    samples, asked = plan.choices.samples, _questions(plan)
    different = f" ({asked} different)" if asked < len(plan.episodes) else ""
    step = f", step {plan.weights.trained.step}" if plan.weights.trained else ""
    lines = [
        f"{plan.weights.name}{step} on {plan.env.name}, split {plan.choices.split}: "
        f"{counted(len(plan.episodes), 'problem')}{different}, {counted(samples, 'completion')} each, {how}",
        "",
    ]
    table = [("", "mean", "95% interval", "values", "")]
    if evaluation.accuracy is not None:
        counts = verdict_counts(evaluation.verdicts)
        verdicts = ", ".join(f"{counts[name]} {name}" for name in ("right", "wrong", "undecided", "failed"))
        table.append(_line("accuracy", evaluation.accuracy, verdicts, share=True))
        for k, estimate in evaluation.pass_at_k.items():
            if k > 1:
                few = f"{counted(estimate.left_out, 'problem')} with fewer than {k} verdicts left out"
                left = few if estimate.left_out else ""
                table.append(_line(f"pass@{k}", estimate, left, share=True))
    for name, estimate in evaluation.rewards.items():
        counts = outcome_counts(measurement, name)
        verdicts = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
        table.append(_line(name, estimate, verdicts))
    lines += aligned(table)
    completions = evaluation.completions
    cut = sum(completion.finish_reason == "length" for completion in completions)
    mean = sum(len(completion.token_ids) for completion in completions) / len(completions)
    limit = plan.rollout.max_completion_length
    where = f"at {limit}" if plan.env.spec.max_turns == 1 else "by a budget of turns or tokens"
    lines += [
        "",
        f"length {mean:.1f} tokens on average, {cut} of {len(completions)} cut {where}; {measurement.seconds:.1f} s",
    ]
    return lines


def _questions(plan: EvaluationPlan) -> int:
    from grpo.core.env.questions import questions_of

    return len(set(questions_of(plan.env, plan.episodes)))


def outcome_counts(measurement: Measurement, reward: str) -> dict[str, int]:
    """Counts the outcomes of a reward that have no score."""
    kinds = [outcome.kind for outcome in measurement.evaluation.outcomes[reward]]
    return {"abstained": kinds.count("abstain"), "failed": kinds.count("failure")}


def _line(name: str, estimate: Estimate, note: str, *, share: bool = False) -> tuple[str, str, str, str, str]:
    def number(value: float) -> str:
        return "-" if math.isnan(value) else f"{value:.1%}" if share else f"{value:.3f}"

    interval = "-" if math.isnan(estimate.low) else f"{number(estimate.low)} to {number(estimate.high)}"
    return (name, number(estimate.mean), interval, str(estimate.count), note)


def _estimate(estimate: Estimate) -> dict[str, float | int | None]:
    mean, low, high = (None if math.isnan(value) else value for value in (estimate.mean, estimate.low, estimate.high))
    return {"mean": mean, "low": low, "high": high, "values": estimate.count, "left_out": estimate.left_out}


def _write(file: Path, rows: list[dict[str, Any]]) -> None:
    from grpo.core.record.run_dir import whole_file

    try:
        with whole_file(file) as unfinished, unfinished.open("w", encoding="utf-8") as lines:
            for row in rows:
                lines.write(encodable(json.dumps(row, ensure_ascii=False, default=str)) + "\n")
    except OSError as error:
        raise RunError(
            f"cannot write {file}: {error.strerror}. Nothing was left there; the figures above hold."
        ) from error
