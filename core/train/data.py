"""What the trainers iterate over: episodes in, datasets of prompts or of tokenised worked answers out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from datasets import Dataset, concatenate_datasets

from grpo.core.env.episodes import Episode, Episodes
from grpo.core.env.order import Source, mixed_order, row_order
from grpo.core.env.prompts import encode_starts
from grpo.core.plan import Plan
from grpo.core.rollout.turns.play import Player
from grpo.core.rollout.turns.players import players_of
from grpo.core.train.demonstrations import demonstrated

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def run_order(plan: Plan) -> list[int]:
    """Returns the numbers of the episodes of the whole run, in order; a sampler chooses others of the environments."""
    config = plan.config
    generations = -(-config.train.steps // config.loss.num_iterations)
    wanted = generations * config.train.prompts_per_step
    sources = [Source(len(part.train), part.share, part.env.ordered) for part in plan.envs]
    return mixed_order(sources, wanted, config.seed)


def placeholder_prompts(plan: Plan) -> Dataset:
    """Returns as many rows as the run asks prompts: TRL counts them, and `Prompts` says what they are."""
    return Dataset.from_dict({"prompt": [""] * len(run_order(plan))})


def taught_rows(plan: Plan, tokenizer: PreTrainedTokenizerBase, wanted: int) -> Dataset:
    """`wanted` worked answers in order, of each environment that has some its share."""
    players = players_of(plan.envs, plan.config.rollout, tokenizer)
    taught = [(part, _taught(part.train, wanted, plan.config.seed)) for part in plan.envs]
    taught = [(part, episodes) for part, episodes in taught if episodes]
    order = mixed_order([Source(len(episodes), part.share) for part, episodes in taught], wanted, plan.config.seed)
    used, tables, first = sorted(set(order)), [], 0
    for part, episodes in taught:  # a demonstration may run programs: only those that are learned from are played
        own = [episodes[number - first] for number in used if first <= number < first + len(episodes)]
        if own:
            tables.append(worked_answers(own, tokenizer, players[part.name]))
        first += len(episodes)
    place = {number: at for at, number in enumerate(used)}
    return concatenate_datasets(tables).select([place[number] for number in order])


def _taught(episodes: Sequence[Episode], wanted: int, seed: int) -> list[Episode]:
    """Returns the episodes with a worked answer; of many rows as many as are wanted, drawn by the seed."""
    if not isinstance(episodes, Episodes):
        return [episode for episode in episodes if episode.actions]
    found: list[Episode] = []
    order = row_order(len(episodes), len(episodes), seed)
    for first in range(0, len(order), wanted):
        found += [episode for episode in episodes.some(order[first : first + wanted]) if episode.actions]
        if len(found) >= wanted:
            break
    return found[:wanted]


def worked_answers(
    episodes: Sequence[Episode], tokenizer: PreTrainedTokenizerBase, player: Player | None = None
) -> Dataset:
    """Tokenised demonstrations: the prompt's tokens, then the answer's and the end token, which alone are learned.

    With a `player` they have several turns, and the environment is stepped for what stands between them.
    """
    if player is not None:
        return _played(episodes, player)
    prompts = encode_starts(tokenizer, episodes)
    answers = [tokenizer(e.actions[0], add_special_tokens=False)["input_ids"] for e in episodes]
    answers = [[*ids, tokenizer.eos_token_id] for ids in answers]
    return Dataset.from_dict(
        {
            "input_ids": [p + a for p, a in zip(prompts, answers, strict=True)],
            "completion_mask": [[0] * len(p) + [1] * len(a) for p, a in zip(prompts, answers, strict=True)],
        }
    )


def _played(episodes: Sequence[Episode], player: Player) -> Dataset:
    rows = [demonstrated(player, episode) for episode in episodes]
    return Dataset.from_dict(
        {
            "input_ids": [ids for ids, _ in rows],
            "completion_mask": [[int(said) for said in mask] for _, mask in rows],
        }
    )


def unfinished_note(masks: Iterable[Sequence[int]], limit: int) -> str | None:
    """Returns what a user should know of worked answers that the policy is too tightly cut to give, or None.

    Args:
        masks: of each row, 1 for the tokens to be learned; what stands together is a turn.
        limit: tokens that a turn may have.
    """
    turns = [max((sum(run) for learned, run in groupby(mask) if learned), default=0) for mask in masks]
    longer = sum(turn > limit for turn in turns)
    if not longer:
        return None
    return (
        f"{longer} of {len(turns)} worked answers of the warm-up have a turn of more than {limit} tokens, where "
        f"completions are cut: the policy learns what it cannot finish. The longest has {max(turns)}: "
        f"--max-completion-length {max(turns)}."
    )
