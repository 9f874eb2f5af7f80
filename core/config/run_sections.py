"""The settings of what stands around training, in their sections: evaluation, output, failures, canaries.

Each is declared once, as those of core/config/sections.py are.
"""

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
        Count, About("Steps between two held-out evaluations; 0: not during training.", flag=Flag("--eval-every"))
    ] = 20
    size: Annotated[
        Count, About("How many held-out rows to evaluate on; 0: no evaluation.", flag=Flag("--eval-size"))
    ] = 200
    stop_on_alarm: Annotated[
        bool,
        About(
            "Ends the run where its reward seems exploited or its policy falls apart; without it, that is a warning.",
            "See [alarm.md](alarm.md).",
            flag=Flag("--stop-on-alarm"),
        ),
    ] = False


class OutputSection(Section):
    """What is written and when."""

    save_every: Annotated[
        AtLeastOne | None,
        About(
            "Steps between checkpoints; at most so many are done again after a crash.",
            "A multiple of `loss.num_iterations`.",
            left_out=f"about {SAVE_EVERY}",
            flag=Flag("--save-every"),
        ),
    ] = None
    keep: Annotated[
        Annotated[int, Field(ge=2)],
        About("How many checkpoints stay on disk.", "At least two, so that one is always whole."),
    ] = 2
    report_to: Annotated[
        tuple[Literal["wandb", "tensorboard", "trackio", "mlflow", "otel"], ...],
        About("Trackers that also receive the metrics.", flag=Flag("--report-to", "A,B", "commas")),
    ] = ()
    project: Annotated[
        str | None,
        About(
            "Where W&B, trackio and MLflow (as the experiment) show the run; an attribute of spans.",
            left_out="what their variables say, else `grpo`",
            flag=Flag("--project"),
        ),
    ] = None
    run_name: Annotated[
        str | None,
        About("What they call it.", left_out="the run directory's name", flag=Flag("--run-name")),
    ] = None
    run_group: Annotated[
        str | None,
        About(
            "Which runs it stands with, in W&B and trackio, as a tag in MLflow and as an attribute of spans.",
            left_out="with none",
            flag=Flag("--run-group"),
        ),
    ] = None
    tags: Annotated[
        tuple[str, ...],
        About(
            "Tags of the run, in W&B, MLflow, trackio (as a setting) and spans.", flag=Flag("--tags", "A,B", "commas")
        ),
    ] = ()


class FailureSection(Section):
    """When failing rewards stop the run."""

    stop_share: Annotated[
        Share,
        About("The run stops when one reward or verifier failed on more than this share of a step's completions."),
    ] = 0.2
    no_signal_steps: Annotated[
        Count,
        About(
            "The run stops when a reward abstained on every completion for this many steps in a row, or when from its "
            "first step on no group of this many steps had two different rewards; 0: never.",
            "A reward without `return` abstains on everything.",
        ),
    ] = 10
    retries: Annotated[
        Count,
        About("How often a call that failed for a transient reason (network, rate limit) is tried again."),
    ] = 2
    wait_limit: Annotated[
        Positive,
        About("Seconds that the processes of a run wait for one that does not come; then the run stops and names it."),
    ] = 1800.0


class CanarySection(Section):
    """Known completions that are scored beside the training batches, outside the loss."""

    file: Annotated[
        Path | None,
        About(
            "Known completions to watch the rewards with.",
            "JSONL with completions, their columns and what each reward should score.",
            left_out="none",
            flag=Flag("--canaries"),
        ),
    ] = None
    cases: Annotated[
        bool,
        About("Takes the cases that the rewards and the verifier declare, too.", flag=Flag("--canary-cases")),
    ] = False
    every: Annotated[AtLeastOne, About("Batches from one check of them to the next.")] = 1
    tolerance: Annotated[NotNegative, About("How far a score may be from what is expected.")] = 1e-6
    share: Annotated[
        Share,
        About(
            "The share of a plugin's canaries that may fail or drift before that is a warning.",
            "For judges whose scores vary.",
        ),
    ] = 0.0
    patience: Annotated[
        AtLeastOne, About("How many checks in a row a plugin may be wrong; the next one stops the run.")
    ] = 2
