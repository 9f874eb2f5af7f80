"""The same rewards in TRL, verifiers and Inspect score the same completions as here, and no failure is a number."""

from __future__ import annotations

import json
import logging
import os
import pickle
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import grpo
from grpo import Completion, reward
from grpo.core.scoring.scorer import Outcome, Scorer
from grpo.plugins.errors import PluginError, PluginNotFound, UsageError
from grpo.plugins.host import Host

SUPPORT = Path(__file__).parents[2] / "support"
REWARDS = SUPPORT / "interop_rewards.py"
TEXTS: tuple[str, ...] = runpy.run_path(str(REWARDS))["TEXTS"]
NAMES = ("moody", "both")


def here(name: str, texts: tuple[str, ...] = TEXTS) -> list[Outcome]:
    """What core/score makes of the completions."""
    with Scorer([Host.discover().reward(f"{REWARDS}:{name}")], retries=0) as scorer:
        return scorer.score([Completion(text, row={"answer": "72"}) for text in texts])[name]


def called(function: Callable[..., Any], texts: tuple[str, ...], **more: Any) -> list[float | None]:
    """Calls a reward function as TRL's trainer does."""
    prompts = [[{"role": "user", "content": "What is 6 * 12?"}]] * len(texts)
    completions = [[{"role": "assistant", "content": text}] for text in texts]
    columns = {"answer": ["72"] * len(texts), "trainer_state": object(), "log_extra": print, **more}
    found: list[float | None] = function(
        prompts=prompts, completions=completions, completion_ids=[[1, 2]] * len(texts), **columns
    )
    return found


@pytest.mark.parametrize("name", NAMES)
def test_trl_gets_the_same_scores_and_none_for_what_is_no_score(name: str, caplog: pytest.LogCaptureFixture) -> None:
    function = grpo.to_trl(f"{REWARDS}:{name}", on_failure="skip")
    assert function.__name__ == name
    metrics: dict[str, float] = {}
    with caplog.at_level(logging.WARNING, "grpo.interop"):
        found = called(function, TEXTS, log_metric=metrics.__setitem__)
    assert found == [outcome.score for outcome in here(name)]
    assert found[-2:] == [None, None]
    assert "2 of 7 completions are not scored" in caplog.text
    assert metrics[f"{name}/failure"] == pytest.approx(2 / 7)
    assert set(metrics) >= ({"both.short/mean", "both.moody/abstain"} if name == "both" else {"moody/abstain"})


def test_a_failure_ends_a_training_with_trl_by_name() -> None:
    function = grpo.to_trl(f"{REWARDS}:moody")
    assert called(function, TEXTS[:5]) == [outcome.score for outcome in here("moody", TEXTS[:5])]
    with pytest.raises(PluginError, match=r"reward 'moody' .* row 1: ValueError: cannot read this one"):
        called(function, ("a", "crash"))


def test_trl_may_pass_plain_text_and_pickle_the_function() -> None:
    function = pickle.loads(pickle.dumps(grpo.to_trl("gsm8k.correctness")))
    texts = ["#### 72", "#### 71"]
    assert function(prompts=["q", "q"], completions=texts, answer=["72", "72"]) == [2.0, 0.0]


def test_what_the_decorator_returned_is_taken_too() -> None:
    @reward(version=1, range=(0.0, 99.0), isolation="inline")
    def size(completion: Completion) -> float:
        return float(len(completion.text) + 10 * len(completion.token_ids) + len(completion.prompt[0]["content"]))

    assert called(grpo.to_trl(size), ("abc",)) == [38.0]


def test_a_wrong_name_or_setting_is_refused_at_once() -> None:
    with pytest.raises(PluginNotFound, match="no reward 'proximty'"):
        grpo.to_trl("proximty")
    with pytest.raises(UsageError, match="'raise' or 'skip'"):
        grpo.to_trl("proximity", on_failure="zero")  # type: ignore[arg-type]


GROUPS = """
from grpo import Component, reward, rubric

@reward(version=1, scope="group", range=(0.0, 1.0), isolation="inline")
def fewest(completions: list[str], answer: str) -> list[float]:
    return [float(len(text) == min(map(len, completions))) for text in completions]

judged = rubric(name="judged", version=1, components=[Component(fewest)])
"""


@pytest.mark.parametrize("name", ["fewest", "judged"])
def test_trl_hands_the_groups_over_side_by_side(name: str, tmp_path: Path) -> None:
    (tmp_path / "groups.py").write_text(GROUPS)
    function = grpo.to_trl(f"{tmp_path}/groups.py:{name}", num_generations=2)
    texts = ["aa", "b", "ccc", "dddd"]
    assert function(prompts=["p", "p", "q", "q"], completions=texts, answer=["1", "1", "2", "2"]) == [
        0.0,
        1.0,
        1.0,
        0.0,
    ]
    assert function(prompts=["p"] * 4, completions=texts, answer=["1"] * 4) == [0.0, 1.0, 1.0, 0.0], "one prompt twice"
    with pytest.raises(
        UsageError, match="scores groups of 2 completions, and TRL handed over 3 that are no such groups"
    ):
        function(prompts=["p"] * 3, completions=texts[:3], answer=["1"] * 3)
    with pytest.raises(UsageError, match="no process has a part of a group"):
        function(prompts=["p", "q", "q", "r"], completions=texts, answer=["1"] * 4)


def test_what_is_no_reward_is_told() -> None:
    with pytest.raises(UsageError, match=r"is not a reward of grpo\. Give a SPEC, or what @reward or rubric returned"):
        grpo.to_trl(len)  # type: ignore[arg-type]


def test_a_reward_of_groups_is_refused_where_a_group_is_not_known(tmp_path: Path) -> None:
    (tmp_path / "groups.py").write_text(GROUPS)
    spec = f"{tmp_path}/groups.py:fewest"
    with pytest.raises(UsageError, match=r"Say how many TRL samples: to_trl\(\.\.\., num_generations=8\)"):
        grpo.to_trl(spec)
    with pytest.raises(UsageError, match="together, and verifiers shows a reward one at a time"):
        grpo.to_verifiers(spec)
    with pytest.raises(UsageError, match="together, and Inspect shows a reward one at a time"):
        grpo.to_inspect(spec)


@pytest.mark.slow
def test_trl_trains_on_our_reward(tiny_model: Path, vowels: str, tmp_path: Path) -> None:
    from datasets import Dataset
    from transformers import AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer

    seen: list[tuple[str, float | None]] = []
    lent = grpo.to_trl(vowels)

    def watched(completions: list[str], **columns: Any) -> list[float | None]:
        scores = lent(completions=completions, **columns)
        seen.extend(zip(completions, scores, strict=True))
        return scores

    trainer = GRPOTrainer(
        model=str(tiny_model),
        reward_funcs=[lent, watched],
        args=GRPOConfig(
            output_dir=str(tmp_path),
            max_steps=1,
            per_device_train_batch_size=4,
            num_generations=4,
            max_completion_length=8,
            logging_steps=1,
            report_to=[],
            save_strategy="no",
            use_cpu=True,
            bf16=False,
        ),
        train_dataset=Dataset.from_list([{"prompt": "Count the vowels."}] * 4),
        processing_class=AutoTokenizer.from_pretrained(tiny_model),
    )
    trainer.train()
    logged = trainer.state.log_history[0]
    scores = [score for _, score in seen if score is not None]
    assert logged["rewards/vowels/mean"] == pytest.approx(sum(scores) / len(scores), abs=1e-6)
    with Scorer([Host.discover().reward(vowels)]) as scorer:
        ours = scorer.score([Completion(text) for text, _ in seen])["vowels"]
    assert [outcome.score for outcome in ours] == [score for _, score in seen]


@pytest.fixture(scope="module")
def libraries(beside: Callable[[Path], dict[str, str]]) -> dict[str, str]:
    """The environment variables of a Python that has verifiers and inspect_ai."""
    return beside(SUPPORT / "interop_packages.txt")


@pytest.mark.nightly
@pytest.mark.install
@pytest.mark.parametrize("library", ["verifiers", "inspect"])
def test_verifiers_and_inspect_make_the_same_of_it(libraries: dict[str, str], library: str, tmp_path: Path) -> None:
    specs = [f"{REWARDS}:{name}" for name in NAMES]
    command = [sys.executable, str(SUPPORT / "interop_parity.py"), library, str(tmp_path), *specs]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, cwd=tmp_path, env=libraries, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    for name, found in zip(NAMES, json.loads(done.stdout.splitlines()[-1]), strict=True):
        for outcome, got in zip(here(name), found, strict=True):
            if outcome.kind == "score":
                assert got == outcome.score
            elif library == "verifiers":
                assert got is None if outcome.kind == "abstain" else got.startswith("failed: ")
                assert outcome.reason is None or outcome.reason.partition("row ")[0] in got
            else:
                reason, explanation = got
                assert reason == {"abstain": "abstained", "failure": "scoring_failed"}[outcome.kind]
                assert outcome.reason is None or outcome.reason.partition("row ")[0] in explanation


@pytest.mark.nightly
@pytest.mark.install
def test_tasksets_of_verifiers_are_environments_here(libraries: dict[str, str], tmp_path: Path) -> None:
    """Tasks of one turn, then tools and several turns, in one process: to load verifiers takes the longest."""
    scripts = [SUPPORT / "interop_taskset.py", SUPPORT / "interop_turns.py"]
    each = "import runpy, sys; [runpy.run_path(script) for script in sys.argv[2:]]"
    command = [sys.executable, "-c", each, str(tmp_path), *map(str, scripts)]
    finding = {**libraries, "PYTHONPATH": f"{libraries['PYTHONPATH']}{os.pathsep}{SUPPORT}"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200, cwd=tmp_path, env=finding, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert [line for line in done.stdout.splitlines() if line == "sound"] == ["sound"] * 2
