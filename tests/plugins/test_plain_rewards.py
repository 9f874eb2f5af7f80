"""Rewards as the field writes them, without a decorator: from a file and from Python, in this process and in others."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from grpo import Completion, check_reward
from grpo.core.cli.show import hits_of
from grpo.core.run.python.objects import PluginObjects
from grpo.core.scoring.scorer import Scorer
from grpo.plugins._spec.binding import BoundReward
from grpo.plugins.errors import UsageError
from grpo.plugins.host import Host
from grpo.plugins.types import Isolation, Message

SOURCE = """
import functools
import numpy as np
from grpo import reward

def right(completion, answer):
    return answer in completion

def right_in_numpy(completion, answer):
    return np.bool_(answer in completion)

def right_for_trl(completions, answer, **kwargs):
    return [gold in text for text, gold in zip(completions, answer)]

def right_with_prompts(prompts, completions, answer, **kwargs):
    assert prompts == [[{"role": "user", "content": "2 + 2?"}]] * len(completions)
    return [np.float32(gold in said[0]["content"]) for said, gold in zip(completions, answer)]

def right_with_rest(completion, answer, **kwargs):
    assert kwargs == {"level": 3, "source": None}
    return answer in completion

def right_by_messages(completion, answer):
    return answer in completion[-1]["content"]

async def right_by_messages_later(completion, answer, **kwargs):
    return float(any(answer in message["content"] for message in completion if message["role"] == "assistant"))

def right_by_annotated_messages(completion: list[dict], answer):
    return answer in str(completion[0])

def right_of_json(completion: str, answer):
    return answer in {"content": completion}["content"]

def right_of_rest(completion, **kwargs):
    return kwargs["answer"] in completion

@reward(version=1)
def right_of_options_and_rest(completion, *, level: int = 1, **row):
    assert level == 1 and "level" not in row
    return row["answer"] in completion

@reward(batch=True)
def right_of_batch(completions, answer, **rest):
    assert rest == {"level": [3] * len(completions), "source": [None] * len(completions)}
    return [gold in text for text, gold in zip(completions, answer)]

@reward(scope="group")
def right_of_group(completions, **rest):
    assert rest["level"] == 3
    return [rest["answer"] in text for text in completions]

def scaled(completion, answer, scale):
    return scale * right(completion, answer)

right_by_partial = functools.partial(scaled, scale=1)
right_by_lambda = lambda completion, answer: answer in completion

class Right:
    def __init__(self, worth):
        self.worth = worth

    def __call__(self, completion: str, answer: str) -> float:
        return self.worth if right(completion.strip(), answer) else 0

right_by_object = Right(1)

@reward
def right_bare(completion, answer):
    return answer in completion

@reward()
def right_empty(completion, answer):
    return np.int64(answer in completion)
"""
NAMES = (
    *("right", "right_in_numpy", "right_for_trl", "right_with_prompts", "right_by_partial", "right_by_lambda"),
    *("right_by_object", "right_bare", "right_empty", "right_with_rest", "right_of_rest"),
    *("right_of_options_and_rest", "right_of_batch", "right_of_group", "right_by_messages"),
    *("right_by_messages_later", "right_by_annotated_messages", "right_of_json"),
)
ASKED = (Message(role="user", content="2 + 2?"),)
BOTH = [Completion(text, prompt=ASKED, row={"answer": "4", "level": 3, "source": None}) for text in ("It is 4.", "no")]


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "mine.py"
    path.write_text(SOURCE)
    return path


def scores(rewards: list[BoundReward]) -> dict[str, list[float | None]]:
    with Scorer(rewards, workers=1, retries=0) as scorer:
        found = scorer.score(BOTH)
    assert {name: [one.reason for one in outcomes] for name, outcomes in found.items()} == {
        reward.name: [None, None] for reward in rewards
    }
    return {name: [one.score for one in outcomes] for name, outcomes in found.items()}


@pytest.mark.parametrize("isolation", ["inline", "thread", "process"])
def test_every_form_of_a_reward_in_a_file_scores(file: Path, isolation: Isolation) -> None:
    bound = [Host([]).reward(f"./mine.py:{name}") for name in NAMES]
    assert [reward.name for reward in bound] == [*NAMES]
    assert {reward.spec.isolation for reward in bound} == {"process"}
    placed = [replace(reward, spec=replace(reward.spec, isolation=isolation)) for reward in bound]
    assert scores(placed) == {name: [1.0, 0.0] for name in NAMES}


def test_a_plain_function_declares_nothing_and_its_check_says_what_a_decorator_adds(file: Path) -> None:
    bound = Host([]).reward("./mine.py:right")
    assert (bound.spec.version, bound.spec.range) == (0, (float("-inf"), float("inf")))
    assert [column.name for column in bound.spec.columns] == ["answer"]
    [note] = [finding.message for finding in check_reward(bound).findings if finding.relation == "declaration"]
    assert note.startswith("@reward(version=1, range=(LOWEST, HIGHEST), cases=[...]) would add a version, so that")
    [note] = [one.message for one in check_reward("./mine.py:right_for_trl").findings if one.relation == "declaration"]
    assert note.startswith(
        "from_trl(right_for_trl, version=1, range=(LOWEST, HIGHEST), cases=[...]) would add a version"
    )


def test_a_partial_has_options_for_what_it_sets(file: Path) -> None:
    assert Host([]).reward("./mine.py:right_by_partial:scale=3").call(BOTH[0]) == 3


def test_the_only_plain_reward_of_a_file_needs_no_name(file: Path) -> None:
    file.write_text("def number(text):\n    return 1.0\n\ndef right(completion):\n    return number(completion)\n")
    assert Host([]).reward("./mine.py").name == "right"
    file.write_text("def number(text):\n    return 1.0\n")
    with pytest.raises(UsageError, match="decorated with @reward\\(\\) or has a first parameter named completion"):
        Host([]).reward("./mine.py")


VERIFIERS = """
import numpy as np
from grpo import Verdict

def annotated(completion, answer) -> Verdict:
    return judged(completion, answer)

def judged(completion, answer, **kwargs):
    return Verdict(answer in completion, extracted=completion)

def told(completion, answer):
    return np.bool_(answer in completion)
"""


def test_an_undecorated_verifier_of_a_file_judges(file: Path) -> None:
    file.write_text(VERIFIERS)
    bound = [Host([]).verifier(f"./mine.py:{name}") for name in ("annotated", "judged", "told")]
    with Scorer(bound, workers=1, retries=0) as scorer:
        found = scorer.judge(BOTH)
    for name in ("annotated", "judged", "told"):
        assert [one.verdict and one.verdict.ok for one in found[name]] == [True, False]


def test_a_plain_function_that_returns_a_verdict_is_offered_as_a_verifier_and_no_other_is(file: Path) -> None:
    file.write_text(VERIFIERS)
    host = Host([])
    assert [hit.kind for hit in hits_of(host, "./mine.py:judged")[0]] == ["verifier"]
    assert [hit.kind for hit in hits_of(host, "./mine.py:told")[0]] == ["reward"]
    assert host.reward("./mine.py").name == "told"
    with pytest.raises(UsageError, match=r"offers 2 verifiers: annotated, judged\. Name one"):
        host.verifier("./mine.py")
    with pytest.raises(UsageError, match=r"mine\.py:judged is a verifier: it returns a Verdict.*with --verifier"):
        host.reward("./mine.py:judged")


class Right:
    """Right or wrong."""

    def __call__(self, completion: str, answer: str) -> np.bool_:
        return np.bool_(answer in completion)

    def score(self, completion: str, answer: str) -> bool:
        return answer in completion


def scaled(completion: str, answer: str, scale: float) -> float:
    return scale * (answer in completion)


def right_for_trl(completions, answer, **kwargs):  # type: ignore[no-untyped-def]
    return [gold in text for text, gold in zip(completions, answer, strict=True)]


@pytest.mark.parametrize("isolation", ["inline", "process"])
@pytest.mark.parametrize(
    ("function", "name"),
    [
        (lambda completion, answer: answer in completion, "lambda"),
        (functools.partial(scaled, scale=1.0), "scaled"),
        (functools.partial(lambda completion, answer, least: answer in completion, least=2), "lambda"),
        (Right(), "Right"),
        (Right().score, "score"),
        (right_for_trl, "right_for_trl"),
        (functools.partial(right_for_trl, level=1), "right_for_trl"),
    ],
    ids=["lambda", "partial", "partial of a lambda", "object", "method", "TRL", "partial for TRL"],
)
def test_every_form_of_a_reward_in_python_scores(function: Callable[..., Any], name: str, isolation: Isolation) -> None:
    host, warned = Host([]), list[str]()
    bound = host.reward(PluginObjects(host, warned.append).ref("reward", function))
    assert (bound.name, bound.spec.isolation, warned) == (name, "process", [])
    placed = replace(bound, spec=replace(bound.spec, isolation=isolation))
    assert scores([placed]) == {name: [1.0, 0.0]}


def test_two_lambdas_are_told_how_to_have_two_names() -> None:
    host = Host([])
    objects = PluginObjects(host, lambda text: None)
    objects.ref("reward", lambda completion: 1.0)
    with pytest.raises(UsageError, match=r"two rewards named 'lambda' .* as in reward\(name='lambda_2'\)\(\.\.\.\)"):
        objects.ref("reward", lambda completion: 0.0)


def test_a_column_that_a_function_looks_for_in_its_keywords_and_no_row_has_is_named_with_those_there_are(
    tmp_path: Path,
) -> None:
    (tmp_path / "keys.py").write_text(
        "def one(completion, **kwargs):\n    return kwargs['gold'] in completion\n"
        "def many(completions, **kwargs):\n    return [text in kwargs['gold'] for text in completions]\n"
        "async def later(completions, **kwargs):\n    return kwargs['gold']\n"
        "def other(completion, **kwargs):\n    return {}['level']\n"
    )
    bound = [Host([]).reward(f"{tmp_path / 'keys.py'}:{name}") for name in ("one", "many", "later", "other")]
    with Scorer(bound, workers=1, retries=0) as scorer:
        reasons = {name: outcomes[0].reason or "" for name, outcomes in scorer.score(BOTH).items()}
    assert all(
        "KeyError: 'gold'; the row has: answer, level, source" in reasons[name] for name in ("one", "many", "later")
    )
    assert reasons["other"].endswith("KeyError: 'level'")
