"""Checks all that can be checked before a model loads, shows the plan, and trains nothing."""

from __future__ import annotations

from grpo.core.check.gold.validate import doubts
from grpo.core.config.schema import RunConfig
from grpo.core.display.progress import Progress
from grpo.core.planning.agent_prompt import own_prompt
from grpo.core.planning.decide import make_plan
from grpo.core.planning.output import RUNS
from grpo.core.planning.rollout import unfit_servers
from grpo.core.record.disk import refuse_full_disk
from grpo.core.text.streams import limited_prints
from grpo.plugins.host import Host


def dry_run(config: RunConfig, host: Host, progress: Progress) -> None:
    """Plans a run, calls its rewards, and tells what would happen.

    Raises:
        UsageError: it cannot start.
    """
    plan = make_plan(config, host, served=False)
    refuse_full_disk(plan.config.out or RUNS, plan.disk_bytes)
    with limited_prints():
        found = [*doubts(plan)]
    unknown = [] if config.agent is None else [own_prompt(config.agent)]
    progress.planned(plan, None, [*unknown, "dry run: nothing was trained"])
    for note in (*plan.notes, *found, *unfit_servers(plan)):
        progress.warned(note)
