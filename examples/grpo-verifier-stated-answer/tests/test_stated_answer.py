"""The verifier accepts right answers and nothing else."""

from __future__ import annotations

from grpo_verifier_stated_answer import stated_answer

from grpo import Host, check_verifier


def test_the_verdict_can_be_trusted() -> None:
    report = check_verifier(stated_answer)
    assert report.ok, str(report)


def test_grpo_finds_it() -> None:
    assert Host.discover().verifier("grpo-verifier-stated-answer/stated_answer").spec is stated_answer
