"""Declares the options that several commands have."""

from __future__ import annotations

import click

from grpo.plugins.errors import UsageError

AT_LEAST_ONE = click.IntRange(min=1)
CONTEXT_LENGTH = click.IntRange(min=2)  # a token of the prompt and one of the completion


def only(context: click.Context, option: click.Parameter, values: tuple[str, ...]) -> str:
    """Returns the value of an option. Raises UsageError if it is given twice: the last would win unseen."""
    if len(values) > 1:
        raise UsageError(f"{option.opts[0]} is given {len(values)} times, and this takes one. Run it for each.")
    return values[0]


# Of what samples:
temperature = click.option(
    "--temperature", type=click.FloatRange(min=0), help="Sampling temperature. Default: 0 (greedy) for -n 1, else 1."
)
template_variables = click.option(
    "--chat-template-kwargs",
    "variables",
    metavar="NAME=VALUE",
    multiple=True,
    help="Variables of the chat template; repeat for several. Default: the run's.",
)
seed = click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=0, help="Seed of the sampling. Default: 0.")

# Of what reads the rows of an environment:
split = click.option(
    "--split", type=click.Choice(["train", "test"]), default="train", help="Split of the rows. Default: train."
)
rewards = click.option(
    "--reward", "rewards", metavar="SPEC", multiple=True, help="Reward; repeat for several. Default: the environment's."
)
