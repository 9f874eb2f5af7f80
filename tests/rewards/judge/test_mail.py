"""examples/mail.toml: the rules of the rubric count, and the judge is asked only where the first of them holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from grpo.core.scoring.scorer import Scorer
from grpo.plugins.host import Host
from grpo.plugins.types import Completion

MAIL = Path(__file__).resolve().parents[3] / "examples" / "mail.toml"
ROW = {"recipient": "Ann Lee", "keywords": ["refund", "Monday"], "question": "Write to Ann Lee about the refund."}
GOOD = "Dear Ann Lee,\n\nyour refund comes on Monday.\n\nKind regards,\nBo"


def test_the_judge_is_asked_only_where_the_first_rule_holds(stand_in: Any, judges: Any) -> None:
    stand_in.brain = lambda messages: judges["verdict"](messages, 10)
    reward = Host.discover().reward(f"{MAIL}:judge.base_url={stand_in.url},judge.model=a-judge")
    texts = [GOOD, GOOD.replace("Ann Lee", "Carl"), GOOD.replace("on Monday", "soon")]
    with Scorer([reward], workers=1) as scorer:
        found = scorer.score([Completion(text, row=ROW) for text in texts])
    scores = [outcome.score for outcome in found["mail"]]
    assert [outcome.kind for outcome in found["mail"]] == ["score"] * 3, found["mail"]
    assert scores[0] is not None
    assert scores[2] is not None
    assert scores[1] == 0.0
    assert scores[0] > scores[2] > 0.0
    assert len(stand_in.bodies) == 2
