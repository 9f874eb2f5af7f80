"""The agent plays an episode without a model: it runs a command, reports what it printed, and ends."""

from __future__ import annotations

from grpo_agent_one_command import one_command

from grpo import Host, check_agent


def test_it_keeps_what_an_agent_promises() -> None:
    report = check_agent(one_command)
    assert not report.findings, str(report)


def test_grpo_finds_it() -> None:
    assert Host.discover().agent("grpo-agent-one-command/one_command").spec is one_command
