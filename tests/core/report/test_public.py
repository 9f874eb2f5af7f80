"""What belongs to one machine is taken out of a record, and nothing else is."""

from __future__ import annotations

import pytest

from grpo.core.report.public import HIDDEN, public_text, public_value


@pytest.mark.parametrize(
    ("text", "public"),
    [
        ("/home/ann/rewards/mine.py:near", "mine.py:near"),
        ("~/mine.py:near", "mine.py:near"),
        ("~ann/mine.py:near", "mine.py:near"),
        ("../ann/mine.py:near", "mine.py:near"),
        ("./mine.py:near:x=1", "mine.py:near:x=1"),
        ("rows:dataset=/data/ann/a b.jsonl", "rows:dataset=a b.jsonl"),
        ("cannot open '/home/ann/x.json'", "cannot open 'x.json'"),
        ("openenv:http://ann:pw@10.0.0.1:8000/secret?k=1", "openenv:http://10.0.0.1:8000"),
        ("judge:api_key=abc,model=m", f"judge:api_key={HIDDEN},model=m"),
        ("it said hf_abcdefghijklmnopqrst", f"it said {HIDDEN}"),
        ("openai/gsm8k", "openai/gsm8k"),
        ("gsm8k:dataset=openai/gsm8k,size=40", "gsm8k:dataset=openai/gsm8k,size=40"),
        ("proximity:eos_token=x,max_tokens=16", "proximity:eos_token=x,max_tokens=16"),
        ("3/4 of the rollouts, 1 / 2", "3/4 of the rollouts, 1 / 2"),
    ],
)
def test_folders_secrets_and_addresses_go_and_the_rest_stays(text: str, public: str) -> None:
    assert public_text(text) == public


def test_every_text_of_a_value_is_made_public() -> None:
    value = {"a": ["/home/ann/x", {"/home/ann/y": 1.5}], "api_key": "abc", "hf_token": None, "steps": 3, "on": True}
    expected = {"a": ["x", {"y": 1.5}], "api_key": HIDDEN, "hf_token": None, "steps": 3, "on": True}
    assert public_value(value) == expected


def test_a_long_hostile_text_is_read_in_time() -> None:
    for text in ("/" * 50_000, "/a" * 50_000, "a" * 100_000, "x=" * 50_000, "token" * 20_000, "a:" * 50_000):
        public_text(text)
