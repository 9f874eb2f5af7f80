"""examples/shortest_right.py pays right answers, the shortest one a bonus, and keeps every relation."""

from pathlib import Path

import pytest

from grpo import Completion, check_reward
from grpo.core.scoring.scorer import Scorer
from grpo.plugins.host import Host

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "shortest_right.py"


def test_the_score_can_be_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRPO_PLUGINS", "grpo-kit")
    report = check_reward(f"{EXAMPLE}:shortest_right")
    assert report.findings == (), str(report)
    assert {"permuted members", "equal members", "member alone", "other groups", "group order"} <= set(report.relations)


def test_the_shortest_right_answer_of_a_group_gets_the_bonus() -> None:
    scores = {"6 * 12 is 72, so\n#### 72": 1.0, "<answer>$72.00</answer>": 1.5, "#### 71": 0.0, "I do not know.": 0.0}
    bound = Host([]).reward(f"{EXAMPLE}:shortest_right")
    members = [Completion(text, row={"answer": "72"}, group=0) for text in scores]
    with Scorer([bound]) as scorer:
        outcomes = scorer.score(members)["shortest_right"]
    assert [outcome.score for outcome in outcomes] == list(scores.values())


def test_behind_a_gate_only_answers_in_the_layout_are_compared(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GRPO_PLUGINS", "grpo-kit")
    gate = '[[components]]\nreward = "format"\ngate = true\n'
    text = f'version = 1\n{gate}[[components]]\nreward = "{EXAMPLE}:shortest_right"\n'
    (tmp_path / "brief.toml").write_text(text, encoding="utf-8")
    wordy = "<reasoning>\n6 * 12 is 72\n</reasoning>\n<answer>\n72\n</answer>"
    brief = "<reasoning>\n72\n</reasoning>\n<answer>\n72\n</answer>"
    members = [Completion(text, row={"answer": "72"}, group=0) for text in ("#### 72", wordy, brief)]
    with Scorer([Host.discover().reward(str(tmp_path / "brief.toml"))]) as scorer:
        found = scorer.score(members)
    assert [outcome.score for outcome in found["brief"]] == [0.0, 2.0, 2.5]
    assert found["brief.shortest_right"][0].kind == "abstain"
