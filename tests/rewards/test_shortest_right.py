"""examples/shortest_right.py does what docs/rewards.md says of it, and keeps every relation."""

import re
from pathlib import Path

import pytest

from grpo import Completion, check_reward
from grpo.core.scoring.scorer import Scorer
from grpo.plugins.host import Host

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "shortest_right.py"
PAGE = (ROOT / "docs" / "rewards.md").read_text(encoding="utf-8").partition("## A bonus")[2].partition("\n## ")[0]


def test_the_score_can_be_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRPO_PLUGINS", "grpo-kit")
    report = check_reward(f"{EXAMPLE}:shortest_right")
    assert report.findings == (), str(report)
    assert {"permuted members", "equal members", "member alone", "other groups", "group order"} <= set(report.relations)


def test_the_table_of_the_page_is_what_it_scores() -> None:
    rows = [re.findall(r"`(.*?)` \| (\S+) \|", line) for line in PAGE.splitlines() if line.startswith("| `")]
    texts, scores = zip(*(row[0] for row in rows), strict=True)
    bound = Host([]).reward(f"{EXAMPLE}:shortest_right")
    members = [Completion(text.replace("\\n", "\n"), row={"answer": "72"}, group=0) for text in texts]
    with Scorer([bound]) as scorer:
        found = scorer.score(members)["shortest_right"]
    assert [outcome.score for outcome in found] == [float(score) for score in scores]
    assert len(texts) == 4


def test_the_rubric_of_the_page_pays_the_bonus_only_in_the_layout(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GRPO_PLUGINS", "grpo-kit")
    text = re.search(r"```toml\n(.*?)```", PAGE, re.DOTALL)[1].replace("./examples", str(EXAMPLE.parent))
    (tmp_path / "brief.toml").write_text(text, encoding="utf-8")
    wordy = "<reasoning>\n6 * 12 is 72\n</reasoning>\n<answer>\n72\n</answer>"
    brief = "<reasoning>\n72\n</reasoning>\n<answer>\n72\n</answer>"
    members = [Completion(text, row={"answer": "72"}, group=0) for text in ("#### 72", wordy, brief)]
    with Scorer([Host.discover().reward(str(tmp_path / "brief.toml"))]) as scorer:
        found = scorer.score(members)
    assert [outcome.score for outcome in found["brief"]] == [0.0, 2.0, 2.5]
    assert found["brief.shortest_right"][0].kind == "abstain"
