"""The e-mail rubric logs each of its parts, and its total is their sum."""

import pytest

from grpo import Completion
from grpo.core.scoring.scorer import Scorer
from grpo.plugins.host import Host

ROW = {"keywords": ["refund", "Friday"], "answer": None, "recipient": "Anna Meyer"}
LETTER = "Dear Anna,\n\nthe refund is sent.\n\nBest,\nTom\n0113 496 0123"


def test_each_part_is_an_outcome_of_its_own_and_an_abstention_is_no_zero() -> None:
    with Scorer([Host.discover().reward("email:length.limit=3")]) as scorer:
        found = scorer.score([Completion(LETTER, row=ROW)])
    scores = {name: outcomes[0].score for name, outcomes in found.items()}
    parts = {"keywords": 0.5, "exact": None, "length": -1.0, "recipient": 1.0, "signature": pytest.approx(1 / 3)}
    assert {name: scores[f"email.{name}"] for name in parts} == parts
    assert found["email.exact"][0].kind == "abstain"
    # Those that scored stand 0.5 + 0 + 1 + 1/3 above the lowest, of at most 4: stretched to the range -1 to 4.
    assert scores["email"] == pytest.approx(-1 + 5 * (0.5 + 0 + 1 + 1 / 3) / 4)
