"""Declares the settings of evaluation, output, failures and canaries, as core/config/sections.py does the others."""

# Annotations are evaluated where they stand: written as text, each would be compiled again in every process.

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from grpo.core.config.defaults import SAVE_EVERY
from grpo.core.config.section import AtLeastOne, Count, NotNegative, Positive, Section, Share
from grpo.core.config.setting import About, Flag


class EvaluationSection(Section):
    """Held-out accuracy by greedy decoding: before, after, and in between."""

    every: Annotated[
        Count, About("Steps between held-out evaluations; 0: not during training.", flag=Flag("--eval-every"))
    ] = 20
    size: Annotated[Count, About("Held-out rows to evaluate on; 0: no evaluation.", flag=Flag("--eval-size"))] = 200
    stop_on_alarm: Annotated[
        bool,
        About(
            "End the run if the reward-hacking alarm triggers; otherwise it is a warning.",
            "See [alarm.md](alarm.md).",
            flag=Flag("--stop-on-alarm"),
        ),
    ] = False


class OutputSection(Section):
    """What is written and when."""

    save_every: Annotated[
        AtLeastOne | None,
        About(
            "Steps between checkpoints; a crash repeats at most as many.",
            "A multiple of `loss.num_iterations`.",
            left_out=f"about {SAVE_EVERY}",
            flag=Flag("--save-every"),
        ),
    ] = None
    keep: Annotated[
        Annotated[int, Field(ge=2)], About("Checkpoints to keep.", "At least two, so that one is always complete.")
    ] = 2
    report_to: Annotated[
        tuple[Literal["wandb", "tensorboard", "trackio", "mlflow", "otel"], ...],
        About("Trackers that also receive the metrics.", flag=Flag("--report-to", "A,B", "commas", panel="trackers")),
    ] = ()
    project: Annotated[
        str | None,
        About(
            "Project in W&B and trackio; experiment in MLflow.",
            left_out="the tracker's variable, else `grpo`",
            flag=Flag("--project", panel="trackers"),
        ),
    ] = None
    run_name: Annotated[
        str | None,
        About(
            "Name of the run in trackers.",
            left_out="the run directory's name",
            flag=Flag("--run-name", panel="trackers"),
        ),
    ] = None
    run_group: Annotated[
        str | None, About("Group of the run in trackers.", left_out="none", flag=Flag("--run-group", panel="trackers"))
    ] = None
    tags: Annotated[
        tuple[str, ...], About("Tags of the run in trackers.", flag=Flag("--tags", "A,B", "commas", panel="trackers"))
    ] = ()


class FailureSection(Section):
    """When failing rewards stop the run."""

    stop_share: Annotated[
        Share, About("Stop the run if a reward or verifier failed on more than this share of a step's completions.")
    ] = 0.2
    no_signal_steps: Annotated[
        Count,
        About(
            "Stop the run after this many steps in which a reward abstained on everything, or after as many first "
            "steps without two different rewards in a group; 0: never."
        ),
    ] = 10
    retries: Annotated[Count, About("Retries of a call that failed for a transient reason (network, rate limit).")] = 2
    wait_limit: Annotated[
        Positive, About("Seconds that processes wait for a missing one before the run stops and names it.")
    ] = 1800.0


class CanarySection(Section):
    """Known completions that are scored beside the training batches, outside the loss."""

    file: Annotated[
        Path | None,
        About(
            "JSONL of completions with known scores, to watch the rewards.",
            "See [scoring.md](scoring.md#canaries).",
            left_out="none",
            flag=Flag("--canaries"),
        ),
    ] = None
    cases: Annotated[
        bool, About("Also use the cases that rewards and verifier declare.", flag=Flag("--canary-cases"))
    ] = False
    every: Annotated[AtLeastOne, About("Batches between checks.")] = 1
    tolerance: Annotated[NotNegative, About("How far a score may be from the expected one.")] = 1e-6
    share: Annotated[
        Share,
        About(
            "Share of a plugin's canaries that may fail or drift without a warning.", "For judges whose scores vary."
        ),
    ] = 0.0
    patience: Annotated[
        AtLeastOne, About("Checks in a row that a plugin may be wrong; the next one stops the run.")
    ] = 2
