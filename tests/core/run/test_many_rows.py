"""A run over more rows than are started before it: the same prompts, completions and weights, also when it resumes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import grpo
from grpo.core.env import episodes


@pytest.mark.nightly
def test_rows_that_become_prompts_when_they_are_asked_train_the_same_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"prompt": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(40)]
    data = tmp_path / "rows.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")

    mine = tmp_path / "mine.py"
    mine.write_text(
        "from grpo import reward\n\n\n"
        '@reward(version=1, isolation="inline")\n'
        "def vowels(completion: str) -> float:\n"
        "    return sum(letter in 'aeiou' for letter in completion) / max(len(completion), 1)\n"
    )

    def trained(name: str, steps: int) -> Any:
        out = tmp_path / name
        if out.exists():
            run = grpo.train(resume=out, steps=steps)
        else:
            run = grpo.train(
                env=f"rows:dataset={data}",
                rewards=[f"{mine}:vowels"],
                steps=steps,
                out=out,
                prompts_per_step=2,
                group_size=2,
                eval_size=2,
                save_every=1,
                train={"lr_schedule": "constant"},
            )
        assert run.status == "done"
        return [list(step["completion"]) for step in run.rollouts], (out / "model" / "model.safetensors").read_bytes()

    whole = trained("all", 3)
    monkeypatch.setattr(episodes, "STARTED", 4)
    trained("resumed", 2)
    assert trained("resumed", 3) == whole
