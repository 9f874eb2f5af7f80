"""The alarm for reward hacking: each signal rings on its pattern, names it, and none rings while a policy learns."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from grpo.core.monitor.hacking.features import MonitoredCompletion
from grpo.core.monitor.hacking.signals import COLLAPSES, FIRST, SIGNALS, HackingWatch, Suspicion

GROUPS, SIZE, STEPS = 8, 8, 40
Makes = Callable[[random.Random, float, int, int], MonitoredCompletion]


def run(makes: Makes, seed: int = 0, steps: int = STEPS, *, steady: bool = True) -> list[Suspicion]:
    """What rings over a run; `makes` is given noise, how much of the run is over, and the group and its gold."""
    noise, watch = random.Random(seed), HackingWatch(steady=steady)
    found: list[Suspicion] = []
    for step in range(steps):
        golds = [noise.randrange(2, 100) for _ in range(GROUPS)]
        scored = [makes(noise, step / steps, group, golds[group]) for group in range(GROUPS) for _ in range(SIZE)]
        found += watch.look(step + 1, scored)
    return found


def said(
    noise: random.Random, group: int, gold: int, right: bool, reward: float | None, more: str = ""
) -> MonitoredCompletion:
    """A completion with an answer of its own, of a length by chance."""
    answer = gold if right else gold + noise.randrange(1, 40)
    working = " ".join(noise.choice(["so", "then", "we", "add", "it"]) for _ in range(noise.randrange(5, 15)))
    return MonitoredCompletion(
        f"what is number {gold}?", f"{working}. {more}\n{answer}", group, reward, right, {"mine": reward}
    )


def learning(noise: random.Random, over: float, group: int, gold: int) -> MonitoredCompletion:
    right = noise.random() < 0.3 + 0.6 * over
    return said(noise, group, gold, right, 1.0 if right else noise.choice([0.0, 0.1, 0.3]))


def nearing(noise: random.Random, over: float, group: int, gold: int) -> MonitoredCompletion:
    """Wrong answers come nearer, and are paid a little for it."""
    right = noise.random() < 0.3 + 0.5 * over
    return said(noise, group, gold, right, 1.0 if right else noise.choice([0.0, 0.2, 0.4]) + 0.12 * over)


def matching(noise: random.Random, over: float, group: int, gold: int) -> MonitoredCompletion:
    """The policy learns, and finds what makes ever more wrong answers be taken for right ones."""
    right = noise.random() < 0.3 + 0.4 * over
    return said(noise, group, gold, right, float(right or noise.random() < 1.5 * over))


def backwards(noise: random.Random, over: float, group: int, gold: int) -> MonitoredCompletion:
    right = noise.random() < 0.5 - 0.4 * over
    return said(noise, group, gold, right, 0.2 if right else 0.6)


def chatting(noise: random.Random, over: float, group: int, gold: int) -> MonitoredCompletion:
    """A phrase pays, whether the answer is right or not."""
    right, phrase = noise.random() < 0.5, noise.random() < 0.2 + 0.7 * over
    return said(noise, group, gold, right, float(phrase), "honestly" if phrase else "")


def decaying(noise: random.Random, over: float, group: int, gold: int) -> MonitoredCompletion:
    """Right answers have the higher reward, and become rare: wrong ones are paid ever more."""
    right = noise.random() < 0.8 - 0.7 * over
    return said(noise, group, gold, right, (1.0 if right else 0.9) + 2 * over)


def collapsing(noise: random.Random, over: float, group: int, gold: int) -> MonitoredCompletion:
    """The policy learns, and then gives up half of its reward for what wrong answers earn as well."""
    right = noise.random() < (0.5 + over if over < 0.4 else 0.9 - 2 * (over - 0.4))
    return said(
        noise, group, gold, right, 0.5 * right + (0.4 if over > 0.4 and noise.random() < 2 * over - 0.8 else 0.0)
    )


def constant(noise: random.Random, over: float, group: int, gold: int) -> MonitoredCompletion:
    one = noise.random() < 1.5 * over
    return MonitoredCompletion(
        f"what is number {gold}?", "7" if one else str(noise.randrange(1000)), group, float(one), None
    )


def longer(noise: random.Random, over: float, group: int, gold: int) -> MonitoredCompletion:
    text = "x" * int(noise.uniform(20, 60) * (1 + 2 * over))
    return MonitoredCompletion(
        f"what is number {gold}?", f"{text}\n{noise.randrange(1000)}", group, len(text) / 200, None
    )


def silencing(noise: random.Random, over: float, group: int, gold: int) -> MonitoredCompletion:
    reward = None if noise.random() < over else noise.random()
    return said(noise, group, gold, noise.random() < 0.5, reward)


def looping(noise: random.Random, over: float, group: int, gold: int) -> MonitoredCompletion:
    more = "it is so " * 20 if noise.random() < over else ""
    return said(noise, group, gold, noise.random() < 0.5, noise.random(), more)


@pytest.mark.parametrize(
    ("makes", "signal", "words"),
    [
        (backwards, "against", "the reward prefers wrong completions"),
        (chatting, "unrelated", "correlates with the text 'honestly' by +1.00"),
        (matching, "closing", "the reward gap between correct and wrong completions of a prompt fell from"),
        (decaying, "falling", "the reward rises while accuracy fell"),
        (collapsing, "falling", "the reward of wrong completions rises while accuracy fell"),
        (constant, "alike", "answers to different prompts are the same"),
        (longer, "surface", "the length predicts the order of rewards within groups"),
        (silencing, "silent", "reward 'mine' has no result for"),
        (looping, "looping", "of the completions repeat themselves"),
    ],
)
def test_each_pattern_rings_once_and_is_named(makes: Makes, signal: str, words: str) -> None:
    found = run(makes)
    [one] = [suspicion for suspicion in found if suspicion.signal == signal]
    assert words in one.text
    assert len({suspicion.signal for suspicion in found}) == len(found)


@pytest.mark.parametrize(
    "tail",
    [" a b" * 2000, "a-b-" * 300, "!" * 600],
    ids=["after the characters that are read first", "without spaces", "one sign"],
)
def test_loops_ring_wherever_and_of_whatever_they_are(tail: str) -> None:
    def stuck(noise: random.Random, over: float, group: int, gold: int) -> MonitoredCompletion:
        words = " ".join(str(noise.random()) for _ in range(250 if tail.startswith(" ") else 15))
        more = tail if noise.random() < over else ""
        return said(noise, group, gold, noise.random() < 0.5, noise.random(), words + more)

    assert "looping" in {one.signal for one in run(stuck, steps=16)}


@pytest.mark.parametrize(
    "tail",
    [lambda n: "\u200b" * n, lambda n: "\u034f" * n, lambda n: f"\n{'.' * (n + 1)}", lambda n: " " * 5000 + "\n" * n],
    ids=["zero width", "combining", "dots", "spaces"],
)
def test_equal_answers_ring_whatever_is_put_behind_them(tail: Callable[[int], str]) -> None:
    def same(noise: random.Random, over: float, group: int, gold: int) -> MonitoredCompletion:
        one = constant(noise, over, group, gold)
        return replace(one, text=one.text + tail(noise.randrange(32)))

    assert "alike" in {one.signal for one in run(same, steps=24)}


def test_different_answers_before_the_same_line_of_dashes_are_different() -> None:
    def ruled(noise: random.Random, over: float, group: int, gold: int) -> MonitoredCompletion:
        one = said(noise, group, gold, noise.random() < 0.5, noise.random())
        return replace(one, text=one.text + ("\n---" if noise.random() < 2 * over else ""))

    assert run(ruled) == []


@pytest.mark.parametrize("large", [1e155, 1e200, float("inf")])
def test_rewards_that_cannot_be_squared_count_as_none_and_others_are_looked_at(large: float) -> None:
    def rewarded(noise: random.Random, over: float, group: int, gold: int) -> MonitoredCompletion:
        one = backwards(noise, over, group, gold)
        paid = replace(one, scores={"mine": one.reward, "huge": large})
        return replace(paid, reward=noise.choice([-large, large])) if noise.random() < 0.2 else paid

    assert "against" in {one.signal for one in run(rewarded)}
    assert run(lambda *args: replace(rewarded(*args), reward=-large)) == []


def test_every_signal_has_a_pattern() -> None:
    exploited = {"against", "unrelated", "closing", "falling", "alike", "surface", "silent", "looping"}
    assert set(SIGNALS) == exploited | set(COLLAPSES)
    assert set(COLLAPSES) == {"worse", "cut", "shorter"}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_a_policy_that_learns_rings_nothing_with_a_verifier_and_without(seed: int) -> None:
    assert run(learning, seed) == []
    assert run(nearing, seed) == []

    def unjudged(noise: random.Random, over: float, group: int, gold: int) -> MonitoredCompletion:
        return replace(learning(noise, over, group, gold), right=None)

    assert run(unjudged, seed) == []


@pytest.mark.parametrize("seed", range(5))
def test_prompts_that_become_harder_ring_nothing_though_accuracy_falls(seed: int) -> None:
    def harder(noise: random.Random, over: float, group: int, gold: int) -> MonitoredCompletion:
        right = noise.random() < (0.3 + 1.2 * over if over < 0.5 else 0.9 - 0.7 * (over - 0.5))
        return said(noise, group, gold, right, 1.0 if right else noise.choice([0.0, 0.1, 0.3]))

    assert run(harder, seed) == []


@pytest.mark.parametrize("seed", range(5))
def test_a_policy_that_learns_nothing_rings_nothing(seed: int) -> None:
    def still(noise: random.Random, over: float, group: int, gold: int) -> MonitoredCompletion:
        right = noise.random() < 0.4
        return said(noise, group, gold, right, float(right))

    assert run(still, seed) == []


def test_answers_of_yes_and_no_are_often_alike_and_ring_nothing() -> None:
    def yes_or_no(noise: random.Random, over: float, group: int, gold: int) -> MonitoredCompletion:
        right = noise.random() < 0.5 + 0.5 * over
        text = "yes" if right == (gold % 2 == 0) else "no"
        return MonitoredCompletion(f"is {gold} even?", text, group, float(right), right)

    assert run(yes_or_no) == []


def test_games_that_end_with_the_same_moves_ring_nothing() -> None:
    def game(noise: random.Random, over: float, group: int, gold: int) -> MonitoredCompletion:
        won = noise.random() < 0.5
        moves = "go right " * 20 if noise.random() < 2 * over else " ".join(noise.choices(["up", "down"], k=20))
        return MonitoredCompletion(f"board {gold}", moves, group, float(won), None, turns=20)

    assert run(game) == []


def test_the_same_prompt_in_all_groups_is_no_sign_that_answers_ignore_it() -> None:
    def one_prompt(noise: random.Random, over: float, group: int, gold: int) -> MonitoredCompletion:
        right = noise.random() < 0.3 + 0.7 * over
        return MonitoredCompletion(
            "what is 3 + 4?", "7" if right else str(noise.randrange(100)), group, float(right), right
        )

    assert run(one_prompt) == []


def test_the_rollouts_it_names_are_wrong_ones_with_the_most_reward() -> None:
    watch = HackingWatch()
    step = [
        MonitoredCompletion("q", f"{n}", 0, reward, right)
        for n, (reward, right) in enumerate([(0.2, True), (0.9, False)] * 4)
    ]
    found = [one for number in range(1, FIRST + 20) for one in watch.look(number, step)]
    assert found[0].signal == "against"
    assert found[0].rollouts == (1, 3, 5)


def test_of_several_rewards_the_one_that_decides_is_named() -> None:
    def mixed(noise: random.Random, over: float, group: int, gold: int) -> MonitoredCompletion:
        phrase, form = noise.random() < 0.2 + 0.7 * over, 0.2 * noise.random()
        one = said(noise, group, gold, noise.random() < 0.5, form + phrase, "honestly" if phrase else "")
        return replace(one, scores={"form": form, "style": float(phrase)})

    found = run(mixed)
    assert found[0].reward == "style"
    assert "Reward 'style' dominates the total." in found[0].text


def test_a_step_without_completions_and_one_without_rewards_are_looked_at() -> None:
    watch = HackingWatch()
    assert watch.look(1, []) == []
    for step in range(2, 8):
        assert watch.look(step, [MonitoredCompletion("q", "", 0, None), MonitoredCompletion("q", "", 0, None)]) == []


def falling_apart(noise: random.Random, over: float, group: int, gold: int) -> MonitoredCompletion:
    """Nothing pays for it: accuracy goes to nothing, and in the end each completion runs into the limit."""
    right = noise.random() < (0.5 + over if over < 0.2 else max(0.0, 0.7 - 4 * (over - 0.2)))
    one = said(noise, group, gold, right, 1.0 if right else noise.choice([0.0, 0.1, 0.3]))
    return replace(one, cut=noise.random() < 3 * (over - 0.4))


def unlearning(noise: random.Random, over: float, group: int, gold: int) -> MonitoredCompletion:
    """The answers are those of a policy that has learned nothing, of the usual length."""
    return replace(falling_apart(noise, over, group, gold), cut=False)


def dwindling(noise: random.Random, over: float, group: int, gold: int) -> MonitoredCompletion:
    right = noise.random() < 0.4
    one = said(noise, group, gold, right, float(right))
    return one if noise.random() < 0.5 - over else replace(one, text=".")


@pytest.mark.parametrize("judged", [True, False])
@pytest.mark.parametrize(
    ("makes", "signals", "words"),
    [
        (falling_apart, {"worse", "cut"}, "of the completions reach the length limit, up from 0% in the first steps"),
        (unlearning, {"worse"}, "in the best steps to"),
        (dwindling, {"shorter"}, "in the first steps, without a gain"),
    ],
)
def test_a_policy_that_falls_apart_rings_by_what_becomes_worse(
    makes: Makes, signals: set[str], words: str, judged: bool
) -> None:
    def seen(noise: random.Random, over: float, group: int, gold: int) -> MonitoredCompletion:
        one = makes(noise, over, group, gold)
        return one if judged else replace(one, right=None)

    found = run(seen)
    assert {one.signal for one in found if one.collapse} == signals
    assert any(words in one.text for one in found)
    [worse] = [one for one in found if one.signal == "worse"] or [None]
    assert worse is None or worse.text.startswith("accuracy fell from" if judged else "the reward fell from")


def test_of_a_policy_that_falls_apart_wrong_completions_are_named() -> None:
    for one in run(falling_apart):
        assert len(one.rollouts) == 3
        assert one.reward == ""


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_nothing_falls_apart_where_answers_become_short_or_long_while_a_policy_learns(seed: int) -> None:
    def brief(noise: random.Random, over: float, group: int, gold: int) -> MonitoredCompletion:
        one = learning(noise, over, group, gold)
        return replace(one, text=one.text[-8:], cut=False) if noise.random() < over else replace(one, cut=True)

    def long(noise: random.Random, over: float, group: int, gold: int) -> MonitoredCompletion:
        return replace(learning(noise, over, group, gold), cut=noise.random() < over)

    assert {one.signal for one in run(brief, seed)} <= {"alike"}
    assert run(long, seed) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_a_run_from_easy_rows_to_hard_ones_does_not_fall_apart(seed: int) -> None:
    def rising(noise: random.Random, over: float, group: int, gold: int) -> MonitoredCompletion:
        right = noise.random() < 0.95 - 0.9 * over
        return said(noise, group, gold, right, 1.0 if right else noise.choice([0.0, 0.1, 0.3]))

    assert run(rising, seed, steady=False) == []
    assert {one.signal for one in run(rising, seed)} == {"worse"}


@pytest.mark.parametrize("seed", range(3))
def test_rewards_below_zero_fall_from_what_they_were_and_not_from_zero(seed: int) -> None:
    def punished(noise: random.Random, over: float, group: int, gold: int) -> MonitoredCompletion:
        right = noise.random() < 0.1
        return replace(said(noise, group, gold, right, -1.0 if right else noise.choice([-2.0, -3.0])), right=None)

    def worse(noise: random.Random, over: float, group: int, gold: int) -> MonitoredCompletion:
        one = said(noise, group, gold, noise.random() < 0.8, noise.choice([-1.0, -0.5]))
        return replace(one, right=None, reward=one.reward if over < 0.4 else -3.0)

    assert run(punished, seed) == []
    [fell] = run(worse, seed)
    assert fell.signal == "worse"
    assert fell.text.startswith("the reward fell from -0.")


@pytest.mark.slow
@pytest.mark.parametrize("level", [0.02, 0.3, 0.9])
def test_a_policy_whose_accuracy_goes_up_and_down_rings_no_more_often_than_is_said(level: float) -> None:
    """Each group has its own difficulty: runs of 60 steps, of which one in twenty may ring."""

    def wandering(noise: random.Random, over: float, group: int, gold: int) -> MonitoredCompletion:
        hard = random.Random(gold).betavariate(4 * level, 4 * (1 - level))
        right = noise.random() < hard
        return said(noise, group, gold, right, float(right))

    assert sum(bool(run(wandering, seed, steps=60)) for seed in range(10)) <= 1


def test_a_prompt_whose_right_and_wrong_completions_are_paid_the_same_is_said_so() -> None:
    def indifferent(noise: random.Random, over: float, group: int, gold: int) -> MonitoredCompletion:
        return said(noise, group, gold, noise.random() < 0.5, over)

    [one] = [suspicion for suspicion in run(indifferent) if suspicion.signal == "unrelated"]
    assert "correct and wrong completions of a prompt are paid the same" in one.text
