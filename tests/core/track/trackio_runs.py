"""Runs that report to the real trackio: a model and an empty folder in, an AssertionError or "sound" out."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import grpo


def short(model: str, out: Path, **output: Any) -> None:
    grpo.train(
        "gsm8k:dataset=embedded",
        "proximity",
        model=model,
        out=out,
        quiet=True,
        evaluation={"size": 0},
        train={"steps": 2, "group_size": 4, "prompts_per_step": 2},
        output={"report_to": ["trackio"], **output},
        rollout={"max_completion_length": 4},
    )


def main(model: str, folder: Path) -> None:
    os.environ["TRACKIO_DIR"] = str(folder / "trackio")
    import trackio

    named = {"project": "sums", "run_group": "baseline", "tags": ["small", "cpu"]}
    short(model, folder / "one", run_name="first", **named)
    assert trackio.context_vars.current_run.get() is None
    grpo.train(resume=folder / "one", steps=3, quiet=True)
    short(model, folder / "two", **named)
    runs = {run.name: run for run in trackio.Api().runs("sums")}
    assert {*runs} == {"first", "two"}, runs
    logs = trackio.sqlite_storage.SQLiteStorage.get_logs("sums", "first")
    rewards = [(row["step"], row["reward"]) for row in logs if "reward" in row]
    assert [step for step, _ in rewards] == [1, 2, 3], rewards
    (table,) = (row["rollouts"] for row in logs if "rollouts" in row)
    rows = table["_value"]
    assert [*rows[0]] == ["step", "group", "prompt", "completion", "reward", "advantage", "right"], rows[0]
    assert len(rows) == 4  # the best and the worst of two groups
    config = trackio.sqlite_storage.SQLiteStorage.get_run_config("sums", "first")
    assert config["train.group_size"] == "4", config
    assert (config["tags"], config["_Group"]) == ("small, cpu", "baseline"), config

    mine = trackio.init(project="mine", name="theirs", embed=False)
    short(model, folder / "three")
    assert trackio.context_vars.current_run.get() is mine
    trackio.finish()
    assert not (folder / "three" / "trackio.json").exists()
    theirs = trackio.sqlite_storage.SQLiteStorage.get_logs("mine", "theirs")
    assert sum("reward" in row for row in theirs) == 2


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
    print("sound")
