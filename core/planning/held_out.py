"""Chooses the held-out episodes of an environment, which ask nothing that is trained on.

Where made-up episodes repeat questions and few are left, one question in ten, by its digest, is held out. Where that
leaves too few, accuracy is measured on the training questions, and a note says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from grpo.core.env.episodes import Episode, Opened, episodes_of
from grpo.core.env.questions import asked_by, question_of, questions_of
from grpo.core.text.printable import counted
from grpo.plugins._spec.binding import BoundEnv

SHARE = 10  # one question of so many is held out
ENOUGH = 4  # one made-up episode of so many may be left
FEWEST = 10  # held-out questions; with fewer, made-up episodes are not divided
FEW = 30  # different questions; fewer say little about others


@dataclass(frozen=True, slots=True)
class HeldOutPart:
    """How the episodes of an environment are divided."""

    train: Sequence[Episode]
    held_out: Sequence[Episode] = ()
    notes: tuple[str, ...] = ()


def hold_out(env: BoundEnv, train: Sequence[Episode], size: int | None, *, made: int, opened: Opened) -> HeldOutPart:
    """Starts the held-out episodes of an environment, given its training episodes.

    `size`: how many; None for all rows of the split. `made`: how many where the environment makes its own and `size` is
    None. `opened`: returns a place to start episodes in. Raises DatasetError for unusable or no rows; PluginError if
    the environment breaks the contract, or an episode does not start in time.
    """

    def started(limit: int | None) -> Sequence[Episode]:
        return episodes_of(env, "test", limit=limit, unbounded=made, opened=opened)

    held = started(size)
    if env.spec.dataset is not None:
        divided = _dropped(env, train, held, size, started)
    else:
        divided = _divided(env, train, held, size or made)
    if divided.notes and env.spec.dataset is None:  # they say how few questions there are
        return divided
    different = len(set(questions_of(env, divided.held_out)))
    if different < min(FEW, len(divided.held_out)):
        note = (
            f"env '{env.name}': its {len(divided.held_out)} held-out problems ask only "
            f"{counted(different, 'different question')}. The interval of its accuracy counts these, and is wide."
        )
        return replace(divided, notes=(*divided.notes, note))
    return divided


def _dropped(
    env: BoundEnv,
    train: Sequence[Episode],
    candidates: Sequence[Episode],
    size: int | None,
    started: Callable[[int | None], Sequence[Episode]],
) -> HeldOutPart:
    question = question_of(env, candidates)
    if not asked_by(question, candidates, train):
        return HeldOutPart(train, candidates)
    every = candidates if size is None else started(None)  # others take the places of those that are dropped
    trained = asked_by(question, every, train)
    kept = [episode for episode in every if question.of(episode) not in trained]
    dropped = len(every) - len(kept)
    ask, were = ("asks", "was") if dropped == 1 else ("ask", "were")
    note = (
        f"env '{env.name}': {dropped} of {counted(len(every), 'held-out row')} {ask} what training rows ask, and "
        f"{were} dropped; {len(kept)} {'is' if len(kept) == 1 else 'are'} left."
    )
    if not kept:
        note += (
            " So no held-out accuracy is measured. Give held-out rows of their own, such as a folder with train.jsonl "
            "and test.jsonl."
        )
    return HeldOutPart(train, _numbered(kept[:size]), (note,))


def _divided(env: BoundEnv, train: Sequence[Episode], candidates: Sequence[Episode], size: int) -> HeldOutPart:
    every = [*candidates, *train]
    question = question_of(env, every)
    trained, asked = {question.of(episode) for episode in train}, {question.of(episode) for episode in candidates}
    left = [episode for episode in candidates if question.of(episode) not in trained]
    if len(left) >= len(candidates) / ENOUGH:
        return HeldOutPart(train, _numbered(left))
    space = trained | asked
    held = {digest for digest in space if digest[0] * 256 + digest[1] < 65536 // SHARE}
    if len(held) < FEWEST:
        note = (
            f"env '{env.name}': among {len(every):,} episodes there are only {len(space)} different questions, too few "
            "to hold some out. Its held-out accuracy is measured on questions that are trained on, and its interval is "
            "wide: it counts the different ones."
        )
        return HeldOutPart(train, candidates, (note,))
    first: dict[bytes, Episode] = {}
    for episode in every:
        if (digest := question.of(episode)) in held:
            first.setdefault(digest, episode)
    rest = [episode for episode in train if question.of(episode) not in held]
    return HeldOutPart(_numbered(rest), _numbered([*first.values()][:size]))


def _numbered(episodes: Sequence[Episode]) -> tuple[Episode, ...]:
    return tuple(replace(episode, index=number) for number, episode in enumerate(episodes))
