"""Declares the settings of evaluation, output, failures and canaries, as core/config/sections.py does the others."""

# Annotations are evaluated where they stand: written as text, each would be compiled again in every process.

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from grpo.core.config.defaults import SAVE_EVERY
from grpo.core.config.section import AtLeastOne, Count, NotNegative, Positive, Section, Share
from grpo.core.config.setting import Flag, setting


class EvaluationSection(Section):
    """Held-out accuracy by greedy decoding: before, after, and in between."""

    every: Count = setting(20, "Steps between held-out evaluations; 0: not during training.", flag="--eval-every")
    size: Count = setting(200, "Held-out rows to evaluate on; 0: no evaluation.", flag="--eval-size")
    stop_on_alarm: bool = setting(
        False,
        "End the run if the reward-hacking alarm triggers; otherwise it is a warning.",
        "See [alarm.md](alarm.md).",
        flag="--stop-on-alarm",
    )


class OutputSection(Section):
    """What is written and when."""

    save_every: AtLeastOne | None = setting(
        None,
        "Steps between checkpoints; a crash repeats at most as many.",
        "A multiple of `loss.num_iterations`.",
        left_out=f"about {SAVE_EVERY}",
        flag="--save-every",
    )
    keep: Annotated[int, Field(ge=2)] = setting(
        2, "Checkpoints to keep.", "At least two, so that one is always complete."
    )
    report_to: tuple[Literal["wandb", "tensorboard", "trackio", "mlflow", "otel"], ...] = setting(
        (), "Trackers that also receive the metrics.", flag=Flag("--report-to", "A,B", "commas", panel="trackers")
    )
    project: str | None = setting(
        None,
        "Project in W&B and trackio; experiment in MLflow.",
        left_out="the tracker's variable, else `grpo`",
        flag=Flag("--project", panel="trackers"),
    )
    run_name: str | None = setting(
        None,
        "Name of the run in trackers.",
        left_out="the run directory's name",
        flag=Flag("--run-name", panel="trackers"),
    )
    run_group: str | None = setting(
        None, "Group of the run in trackers.", left_out="none", flag=Flag("--run-group", panel="trackers")
    )
    tags: tuple[str, ...] = setting(
        (), "Tags of the run in trackers.", flag=Flag("--tags", "A,B", "commas", panel="trackers")
    )


class FailureSection(Section):
    """When failing rewards stop the run."""

    stop_share: Share = setting(
        0.2, "Stop the run if a reward or verifier failed on more than this share of a step's completions."
    )
    no_signal_steps: Count = setting(
        10,
        "Stop the run after this many steps in which a reward abstained on everything, or after as many first "
        "steps without two different rewards in a group; 0: never.",
    )
    retries: Count = setting(2, "Retries of a call that failed for a transient reason (network, rate limit).")
    wait_limit: Positive = setting(
        1800.0, "Seconds that processes wait for a missing one before the run stops and names it."
    )


class CanarySection(Section):
    """Known completions that are scored beside the training batches, outside the loss."""

    file: Path | None = setting(
        None,
        "JSONL of completions with known scores, to watch the rewards.",
        "See [scoring.md](scoring.md#canaries).",
        left_out="none",
        flag="--canaries",
    )
    cases: bool = setting(False, "Also use the cases that rewards and verifier declare.", flag="--canary-cases")
    every: AtLeastOne = setting(1, "Batches between checks.")
    tolerance: NotNegative = setting(1e-6, "How far a score may be from the expected one.")
    share: Share = setting(
        0.0, "Share of a plugin's canaries that may fail or drift without a warning.", "For judges whose scores vary."
    )
    patience: AtLeastOne = setting(2, "Checks in a row that a plugin may be wrong; the next one stops the run.")
