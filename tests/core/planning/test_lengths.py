"""Where completions are cut, and the prompts that do not fit beside them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import pytest

from grpo.core.config.schema import parse_config
from grpo.core.env import episodes as episodes_module
from grpo.core.env.episodes import Episode, Episodes, episodes_of
from grpo.core.planning import lengths as lengths_module
from grpo.core.planning.facts import Facts, ModelFacts, read_model
from grpo.core.planning.lengths import Limits, _Measured, decide_lengths, longest_prompt, refuse_too_long
from grpo.plugins._spec.binding import BoundEnv
from grpo.plugins.errors import DatasetError, UsageError
from grpo.plugins.specs import EnvSpec
from grpo.plugins.types import Message


@pytest.fixture(scope="module")
def model(tiny_model: Path) -> ModelFacts:
    return read_model(str(tiny_model))


def asking(*texts: str, answer: str | None = None) -> dict[str, list[Episode]]:
    prompts = [(Message(role="user", content=text),) for text in texts]
    return {"train": [Episode(n, prompt, {}, answer, {}, place=f"row {n}") for n, prompt in enumerate(prompts)]}


def test_completions_are_shorter_for_the_embedded_model_unless_told(facts_of: Callable[..., Facts]) -> None:
    def cut(embedded: bool, **rollout: Any) -> int:
        config = parse_config({"env": "one", "rollout": rollout})
        return decide_lengths(config, facts_of(embedded=embedded))

    assert (cut(True), cut(False), cut(False, max_completion_length=7)) == (96, 512, 7)


def longest(model: ModelFacts, facts: Facts, rows: Mapping[str, Sequence[Episode]], limits: Limits) -> int:
    return longest_prompt(model, [(facts.envs[0], rows)], limits)


def test_the_longest_prompt_is_counted_and_one_that_is_too_long_named(
    model: ModelFacts, facts_of: Callable[..., Facts]
) -> None:
    rows, facts = asking("What is 2?", "Why? " * 30), facts_of()
    most = longest(model, facts, rows, Limits(16))
    assert most > 60
    assert longest(model, facts, rows, Limits(16, most)) == most
    with pytest.raises(DatasetError, match=rf"row 1: the prompt has {most} tokens, over rollout\.max_prompt_length"):
        longest(model, facts, rows, Limits(16, most - 1))
    assert model.context is not None
    assert longest(model, facts, rows, Limits(model.context - most)) == most
    with pytest.raises(DatasetError, match="together over the model's context"):
        longest(model, facts, rows, Limits(model.context - most + 1))


def test_worked_answers_count_where_they_are_learned(model: ModelFacts, facts_of: Callable[..., Facts]) -> None:
    rows, facts = asking("What is 2?", answer="so " * 2000), facts_of()
    assert longest(model, facts, rows, Limits(16))
    with pytest.raises(DatasetError, match="its worked answer"):
        longest(model, facts, rows, Limits(16, taught=True))


@pytest.mark.parametrize(
    ("lengths", "limits"),
    [
        ((50, 80, 70), Limits(40)),
        ((50, 80, 70), Limits(40, prompt=60)),
        ((50, 80, 70), Limits(10, prompt=60)),
        ((50, 99, 60), Limits(90, prompt=10, rollout=95)),
        ((100, 50, 300, 70), Limits(31)),
        ((100, 300), Limits(1, prompt=20)),
    ],
)
def test_the_advice_on_long_prompts_works_at_once_when_it_is_followed(lengths: tuple[int, ...], limits: Limits) -> None:
    prompts = [_Measured(f"row {n}", length) for n, length in enumerate(lengths)]
    with pytest.raises(DatasetError) as error:
        refuse_too_long(prompts, limits, 100)
    text = str(error.value)
    names = {f"rollout.max_{name}_length": name for name in ("prompt", "completion", "rollout")}
    told_to = dict(re.findall(r"(rollout\.\w+) to (\d+)", text))
    if "whose prompt alone fills the context" in text:
        prompts = [one for one in prompts if one.length < 100]
    lower: dict[str, Any] = {names[name]: int(value) for name, value in told_to.items()}
    changed = replace(limits, **lower)
    refuse_too_long(prompts, changed, 100)
    assert changed.rollout is None or changed.rollout + max(one.length for one in prompts) <= 100


def test_an_answer_that_is_too_long_to_be_learned_is_told_beside_a_prompt_that_is_too_long() -> None:
    prompts = [_Measured("row 0", 50, 60), _Measured("row 1", 80)]
    with pytest.raises(DatasetError, match=r"Lower .* to 20 and leave --warmup-steps out or drop the row whose worked"):
        refuse_too_long(prompts, Limits(30, taught=True), 100)


def test_a_template_that_shows_nothing_is_refused_by_the_tokenizers_name(
    tiny_model: Path, facts_of: Callable[..., Facts]
) -> None:
    model = replace(read_model(str(tiny_model)), tokenizer_source="there")
    model.tokenizer.chat_template = "hello"
    with pytest.raises(UsageError, match="the chat template of 'there' makes one and the same prompt"):
        longest(model, facts_of(), asking("What is 2?", "Why?"), Limits(16))


class Asking(gymnasium.Env[str, str]):
    """Asks the question of a row."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        assert options is not None
        return options["row"]["question"], {}


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> Callable[[list[str]], Episodes]:
    monkeypatch.setattr(episodes_module, "STARTED", 5)
    monkeypatch.setattr(lengths_module, "LONGEST", 3)
    monkeypatch.setattr(lengths_module, "_BLOCK", 2)

    def of(questions: list[str]) -> Episodes:
        rows = [{"question": question} for question in questions]
        spec = EnvSpec(name="asking", version=1, factory=Asking, dataset=lambda split: rows)
        episodes = episodes_of(BoundEnv(spec, "some-dist"), "train", limit=None, unbounded=1)
        assert isinstance(episodes, Episodes)
        return episodes

    return of


def test_of_many_prompts_the_longest_are_counted_and_no_other_has_more_tokens(
    model: ModelFacts, facts_of: Callable[..., Facts], many: Callable[[list[str]], Episodes]
) -> None:
    questions = ["Why? " * (1 + number * 7 % 40) for number in range(40)]
    questions[33] = "Why? " * 90
    rows, facts = many(questions), facts_of()
    assert 33 not in [episode.index for episode in rows.sample]
    most = longest(model, facts, {"train": list(rows)}, Limits(16))
    assert longest(model, facts, {"train": rows}, Limits(16)) == most
    with pytest.raises(DatasetError, match=rf"row 33: the prompt has {most} tokens"):
        longest(model, facts, {"train": rows}, Limits(16, most - 1))
    even = many(["Why? " * 20 + "\u0416" * (number == 9) for number in range(40)])
    assert longest(model, facts, {"train": even}, Limits(16)) >= longest(
        model, facts, {"train": list(even)}, Limits(16)
    )


def test_every_one_of_many_prompts_that_may_be_too_long_is_counted(
    model: ModelFacts, facts_of: Callable[..., Facts], many: Callable[[list[str]], Episodes]
) -> None:
    rows, facts = many(["Why? " * (30 if number < 20 else 1) for number in range(40)]), facts_of()
    most = longest(model, facts, {"train": rows}, Limits(16))
    with pytest.raises(DatasetError, match="the longest of 20 that are too long"):
        longest(model, facts, {"train": rows}, Limits(16, most - 1))
