"""Makes the data set that TRL's own trainer reads of a run's plan: its prompts, in the order of the run."""

from __future__ import annotations

from datasets import Dataset

from grpo.core.plan import Plan
from grpo.core.train.sft.data import run_order


def prompt_rows(plan: Plan) -> Dataset:
    """Returns one row for each prompt of the run, of chat messages."""
    return Dataset.from_dict({"prompt": [list(plan.train[number].prompt) for number in run_order(plan)]})
