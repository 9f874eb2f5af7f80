"""The environment "reverse this word" with the reward and the verifier that it uses.

In: nothing but a seed; the rows are made up. Out: specs for grpo. This module is imported by every grpo command that
lists plugins, so it imports nothing heavy: gymnasium waits in `environment`.
"""

from __future__ import annotations

import random
from typing import Any

from grpo import Case, EnvSpec, OptionError, RewardSpec, Verdict, VerifierSpec, env, hookimpl, reward, verifier

grpo_contract = 1
_CONSONANTS = "bcdfghklmnprstvw"
_VOWELS = "aeiou"


@reward(
    version=1,
    range=(0.0, 1.0),
    isolation="inline",
    cases=[
        Case("gol", row={"word": "log"}, expect=1.0),
        Case(" gol\n", row={"word": "log"}, expect=1.0),
        Case("gal", row={"word": "log"}, expect=1 / 3),
        Case("log", row={"word": "log"}, expect=1 / 6),
        Case("", row={"word": "log"}, expect=0.0),
    ],
)
def reversal(completion: str, word: str) -> float:
    """Scores a reversed word: 1 if it is right, else up to one half for the letters that stand in their places.

    Args:
        completion: the text that is scored; blanks around it do not count.
        word: the word to reverse.
    """
    answer, gold = completion.strip(), word[::-1]
    if answer == gold:
        return 1.0
    right = sum(given == wanted for given, wanted in zip(answer, gold, strict=False))
    return 0.5 * right / max(len(gold), len(answer))


@verifier(
    version=1,
    isolation="inline",
    cases=[
        Case("gol", row={"word": "log"}, expect=True),
        Case("log", row={"word": "log"}, expect=False),
    ],
)
def reversed_word(completion: str, word: str) -> Verdict:
    """Judges whether a completion is the word backwards.

    Args:
        completion: the text that is judged; blanks around it do not count.
        word: the word to reverse.
    """
    answer = completion.strip()
    return Verdict(answer == word[::-1], extracted=answer or None, reason=f"expected {word[::-1]!r}")


def rows(split: str, *, syllables: int = 2, size: int = 200, data_seed: int = 0) -> list[dict[str, str]]:
    """Makes up the rows of a split; the words of one split do not depend on those of another.

    Raises:
        OptionError: `syllables` or `size` is below 1.
    """
    if syllables < 1 or size < 1:
        raise OptionError(f"env 'reverse': syllables={syllables} and size={size} must both be 1 or more.")
    source = random.Random(f"{split} {data_seed}")
    return [
        {"word": "".join(source.choice(_CONSONANTS) + source.choice(_VOWELS) for _ in range(syllables))}
        for _ in range(size)
    ]


@env(version=1, dataset=rows, rewards=["reversal"], verifier="reversed_word")
def reverse(*, syllables: int = 2, size: int = 200, data_seed: int = 0) -> Any:
    """Asks for a made-up word, backwards; the answer is the word alone.

    Args:
        syllables: the length of the words, two letters each.
        size: the number of rows in each split.
        data_seed: seeds the words.
    """
    from grpo_env_reverse.environment import ReverseEnv

    return ReverseEnv(rows("train", syllables=syllables, size=size, data_seed=data_seed))


@hookimpl
def grpo_envs() -> list[EnvSpec]:
    """Offers the environment to grpo."""
    return [reverse]


@hookimpl
def grpo_rewards() -> list[RewardSpec]:
    """Offers the reward to grpo."""
    return [reversal]


@hookimpl
def grpo_verifiers() -> list[VerifierSpec]:
    """Offers the verifier to grpo."""
    return [reversed_word]
