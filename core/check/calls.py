"""Calls a plugin on rows of an environment, and on a row with the usual columns, before a run does."""

from __future__ import annotations

from typing import Any

from grpo.core.check.gold.validate import answered
from grpo.core.check.report import Findings
from grpo.core.check.scores import Bound
from grpo.core.check.trial import OWN_ROW, faults_of, own_completions
from grpo.core.env.episodes import START_SECONDS, episodes_of
from grpo.core.env.mixture import missing_columns, refuse_missing_columns
from grpo.core.scoring.scorer import Scorer
from grpo.plugins.errors import did_you_mean
from grpo.plugins.host import Host
from grpo.plugins.specs import EnvSpec

DEFAULT_ENV = "gsm8k"
_ROWS = 2


def check_calls(bound: Bound, scorer: Scorer, env: str | None, findings: Findings) -> None:
    """Calls the plugin on rows of `env`, of its own or of the default one, and notes what fails or never differs."""
    host = Host.discover()
    own = _own_env(bound, host)
    source = host.env(env or own or DEFAULT_ENV).settled()
    episodes = episodes_of(source, "train", limit=_ROWS, unbounded=_ROWS, describe_tools=False)
    if env is not None:
        refuse_missing_columns(episodes[0], [bound])
    lacking = missing_columns(bound, episodes[0].row)
    completions = [] if lacking else answered(source, episodes, START_SECONDS)
    completions += [] if env or own or missing_columns(bound, OWN_ROW) else own_completions()
    if not completions:
        meant = did_you_mean(lacking[0], [*episodes[0].row, *OWN_ROW]) if lacking else ""
        findings.add(
            "error" if meant else "warning",
            "calls",
            f"it was not called: the rows of env '{source.name}' lack the column {', '.join(lacking)}.{meant} Name an "
            "environment whose rows have it, as in --env rows:dataset=my.jsonl",
        )
        return
    findings.tried("calls")
    for fault in faults_of(bound, scorer, completions):
        findings.add(fault.severity, "calls", fault.message, fault.example)


def _own_env(bound: Bound, host: Host) -> str | None:
    """Returns the first environment that names a plugin as its own, or None."""
    for known in host.registrations("env"):
        spec: Any = known.spec
        own = isinstance(spec, EnvSpec) and spec.resolve is None and known.distribution == bound.distribution
        if own and bound.spec.name in (*spec.rewards, spec.verifier):
            return f"{known.distribution}/{spec.name}"
    return None
