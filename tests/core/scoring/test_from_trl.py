"""Functions written for TRL score here what TRL's own trainer makes of them, in every room."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from grpo.core.scoring.scorer import Scorer
from grpo.plugins._spec.binding import BoundReward
from grpo.plugins.from_trl import Form, from_trl
from grpo.plugins.types import Completion, Isolation, Message

TEXTS = [
    "<think>\nSix twelves.\n</think>\n\\boxed{72}",
    "<think>\nno\n</think>\nThe answer is $71$.",
    "72",
    "",
    "again and again and again and again",
    "\\boxed{\\frac{144}{2}} " + "on and on " * 20,
]
SOLUTIONS = ["72", "72", "72", "$72$", "no mathematics", "72"]


def completions() -> list[Completion]:
    return [
        Completion(
            text,
            messages=(Message(role="assistant", content=text),),
            prompt=(Message(role="user", content="How many?"),),
            row={"solution": solution, "level": index, "prompt": "dropped"},
            token_ids=tuple(ord(letter) for letter in text),
        )
        for index, (text, solution) in enumerate(zip(TEXTS, SOLUTIONS, strict=True))
    ]


def text_length(prompts, completions, completion_ids, level, **kwargs):  # type: ignore[no-untyped-def]
    assert kwargs["solution"] == SOLUTIONS[: len(prompts)]
    kwargs["log_extra"]("level", level)
    kwargs["log_metric"]("levels", float(sum(level)))
    texts = [part if isinstance(part, str) else part[0]["content"] for part in completions]
    return [
        None if n == 2 else float(len(t) + len(ids)) for n, t, ids in zip(level, texts, completion_ids, strict=True)
    ]


def rank_in_batch(completions, **kwargs):  # type: ignore[no-untyped-def]
    """Its scores depend on what else is in the batch."""
    sizes = [len(str(part)) for part in completions]
    return [sum(size > other for other in sizes) for size in sizes]


async def waits(completions, solution, **kwargs):  # type: ignore[no-untyped-def]
    await asyncio.sleep(0.01)
    return [len(text) > 2 for text in solution]


@pytest.fixture(scope="module")
def trl_scores() -> Iterator[Callable[[Callable[..., Any], Form], list[float | None]]]:
    """Scores by the method of TRL's trainer that calls rewards, on a trainer that has what this method reads."""
    from accelerate import PartialState
    from trl import GRPOTrainer

    PartialState()  # TRL's logger asks for it
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    def scores(function: Callable[..., Any], form: Form) -> list[float | None]:
        batch = completions()
        trainer = SimpleNamespace(
            accelerator=SimpleNamespace(device="cpu", is_main_process=True),
            reward_funcs=[function],
            reward_processing_classes=[None],
            reward_func_names=["mine"],
            environments=None,
            state=SimpleNamespace(global_step=0),
            async_loop=loop,
            _log_completion_extra=lambda name, values: None,
            _log_metric=lambda name, value: None,
            args=SimpleNamespace(report_to=[]),
            _metrics={},
            model=SimpleNamespace(training=True),
        )
        prompts = [[dict(m) for m in one.prompt] if form == "messages" else one.prompt[0]["content"] for one in batch]
        texts = [[dict(m) for m in one.messages] if form == "messages" else one.text for one in batch]
        rows = [dict(one.row) for one in batch]
        got = GRPOTrainer._calculate_rewards(trainer, rows, prompts, texts, [list(one.token_ids) for one in batch])
        return [None if math.isnan(value) else value for value in got[:, 0].tolist()]

    yield scores
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def our_scores(function: Callable[..., Any], form: Form, isolation: Isolation) -> list[float | None]:
    spec = from_trl(function, version=1, isolation=isolation, timeout=60.0)
    with Scorer([BoundReward(spec, "", {"form": form}, timeout=spec.timeout)], workers=1) as scorer:
        [outcomes] = scorer.score(completions()).values()
    assert not scorer.first_failure, scorer.first_failure
    return [outcome.score for outcome in outcomes]


def same(ours: Sequence[float | None], theirs: Sequence[float | None]) -> bool:
    """True for the same scores in single precision, which is what TRL keeps."""
    return [score is None for score in ours] == [score is None for score in theirs] and [
        score for score in ours if score is not None
    ] == pytest.approx([score for score in theirs if score is not None], rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["messages", "text"])
@pytest.mark.parametrize("function", [text_length, rank_in_batch, waits], ids=lambda function: function.__name__)
def test_scores_are_those_of_trls_reward_path(trl_scores, function, form) -> None:  # type: ignore[no-untyped-def]
    theirs = trl_scores(function, form)
    assert len(set(theirs)) > 1
    for isolation in ("inline", "process"):
        assert same(our_scores(function, form, isolation), theirs), isolation


def published() -> list[Any]:
    from trl import rewards

    punishment = rewards.get_soft_overlong_punishment(max_completion_len=100, soft_punish_cache=60)
    names = [rewards.think_format_reward, punishment, rewards.get_repetition_penalty_reward(ngram_size=2)]
    if rewards.accuracy_rewards.is_math_verify_available():
        names += [rewards.accuracy_reward, rewards.get_cosine_scaled_reward(max_len=100)]
    return names


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_trls_own_rewards_run_unmodified_in_worker_processes(trl_scores) -> None:  # type: ignore[no-untyped-def]
    for function in published():
        theirs = trl_scores(function, "messages")
        assert len(set(theirs)) > 1, function
        assert same(our_scores(function, "messages", "process"), theirs), function


def test_a_crash_is_a_failure_of_its_batch_and_never_a_score() -> None:
    def raising(completions, **kwargs):  # type: ignore[no-untyped-def]
        raise KeyError("nothing")

    spec = from_trl(raising, version=1, isolation="inline")
    with Scorer([BoundReward(spec, "")]) as scorer:
        [outcomes] = scorer.score(completions()).values()
    assert {outcome.kind for outcome in outcomes} == {"failure"}
    assert "KeyError" in (outcomes[0].reason or "")
