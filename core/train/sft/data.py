"""Makes the trainers' datasets: prompts, or worked answers, whose shared prefix is computed once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

import torch
from datasets import Dataset, concatenate_datasets

from grpo.core.env.episodes import Action, Episode, Episodes
from grpo.core.env.order import Source, mixed_order, row_order
from grpo.core.env.prompts import encode_episodes
from grpo.core.env.threads import Raised
from grpo.core.env.tools import ToolCall
from grpo.core.env.worked import WorkedTurn, play_worked
from grpo.core.plan import Plan
from grpo.core.policy.blocks import can_pack
from grpo.core.policy.chat_template import opened_block
from grpo.core.policy.modules import cache_argument, output_cache
from grpo.core.processes.group import gathered
from grpo.core.rollout.players import players_of
from grpo.core.rollout.turns.play import Player
from grpo.core.rollout.turns.tools import ToolFormat
from grpo.core.train.update.packing import IGNORED
from grpo.plugins._spec.binding import BoundEnv
from grpo.plugins.errors import PluginError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Taught = tuple[list[int], list[bool]]  # the tokens of a demonstration with its prompt, and which are to be learned
LEAST = 16  # tokens; below, a second forward pass costs more than it saves


def run_order(plan: Plan) -> list[int]:
    """Returns the numbers of the episodes of the whole run, in order; a sampler chooses others."""
    config = plan.config
    generations = -(-config.train.steps // config.loss.num_iterations)
    wanted = generations * config.train.prompts_per_step
    sources = [Source(len(part.train), part.share, part.env.ordered) for part in plan.envs]
    return mixed_order(sources, wanted, config.seed)


def placeholder_prompts(plan: Plan) -> Dataset:
    """Returns as many rows as the run has prompts: TRL counts them, and `Prompts` says what they are."""
    return Dataset.from_dict({"prompt": [""] * len(run_order(plan))})


def taught_rows(
    plan: Plan, tokenizer: PreTrainedTokenizerBase, wanted: int, warned: Callable[[str], None] = lambda text: None
) -> Dataset:
    """Returns `wanted` worked answers, shared among environments; failures go to `warned`. PluginError: all fail."""
    players = players_of(plan.envs, plan.config.rollout, tokenizer)
    taught = [(part, _taught(part.train, wanted, plan.config.seed)) for part in plan.envs]
    taught = [(part, episodes) for part, episodes in taught if episodes]
    order = mixed_order([Source(len(episodes), part.share) for part, episodes in taught], wanted, plan.config.seed)
    used, first = sorted(set(order)), 0
    tables: list[Dataset] = []
    row_of: dict[int, int] = {}  # number of an episode to its row in the tables
    for part, episodes in taught:  # a demonstration may run programs: only those that are learned from are played
        own = [number for number in used if first <= number < first + len(episodes)]
        rows = sum(len(table) for table in tables)
        if own:
            asked = [episodes[number - first] for number in own]
            table, failed = worked_answers(
                asked, tokenizer, plan.config.rollout.max_completion_length, players[part.name]
            )
            tables.append(table)
            if failed:
                warned(_failed_note(part.env, asked, failed))
            kept = [number for place, number in enumerate(own) if place not in failed]
            row_of |= {number: rows + place for place, number in enumerate(kept)}
            lost = [number for place, number in enumerate(own) if place in failed]
            row_of |= {number: rows + place % len(kept) for place, number in enumerate(lost)}
        first += len(episodes)
    return concatenate_datasets(tables).select([row_of[number] for number in order])


def _taught(episodes: Sequence[Episode], wanted: int, seed: int) -> list[Episode]:
    if not isinstance(episodes, Episodes):
        return [episode for episode in episodes if episode.actions]
    taught: list[Episode] = []
    order = row_order(len(episodes), len(episodes), seed)
    for first in range(0, len(order), wanted):
        taught += [episode for episode in episodes.some(order[first : first + wanted]) if episode.actions]
        if len(taught) >= wanted:
            break
    return taught[:wanted]


def worked_answers(
    episodes: Sequence[Episode], tokenizer: PreTrainedTokenizerBase, turn_tokens: int, player: Player | None = None
) -> tuple[Dataset, dict[int, str]]:
    """Tokenises demonstrations; returns rows, and the failures of any process by place. Raises PluginError if all fail.

    Only the answer and the end token are learned. `player`: plays the environment between turns; None: it is not
    stepped.
    """
    if player is not None:
        return _played(episodes, player, turn_tokens)
    prompts = encode_episodes(tokenizer, episodes)
    opening, _ = opened_block(tokenizer)  # what the prompt has opened is not opened again
    texts = [str(e.actions[0]) for e in episodes]
    texts = [text.removeprefix(opening.strip()).lstrip("\n") if opening else text for text in texts]
    answers = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
    answers = [[*ids, tokenizer.eos_token_id] for ids in answers]
    rows = [(p + a, [False] * len(p) + [True] * len(a)) for p, a in zip(prompts, answers, strict=True)]
    return _dataset(rows), {}


def _played(episodes: Sequence[Episode], player: Player, turn_tokens: int) -> tuple[Dataset, dict[int, str]]:
    rollouts = demonstrated(player, episodes, turn_tokens)
    failed = {place: rollout.explained() for place, rollout in enumerate(rollouts) if isinstance(rollout, Raised)}
    failures = gathered(failed, "the worked answers")  # of the same rows on every process
    failed = {place: why for failure in reversed(failures) for place, why in failure.items()}
    if len(failed) == len(episodes):
        place = min(failed)
        raise PluginError(
            f"env '{player.env.name}' ({player.env.distribution}) fails at the demonstration of each of the "
            f"{len(episodes)} rows that the warm-up would learn from. Row {episodes[place].index}: {failed[place]}. "
            f"Check it with: grpo plugins validate {player.env.name}"
        )
    kept = [
        rollout for place, rollout in enumerate(rollouts) if place not in failed and not isinstance(rollout, Raised)
    ]
    return _dataset(kept), failed


def _dataset(rows: Sequence[Taught]) -> Dataset:
    return Dataset.from_dict(
        {"input_ids": [ids for ids, _ in rows], "completion_mask": [[int(flag) for flag in mask] for _, mask in rows]}
    )


def _failed_note(env: BoundEnv, episodes: Sequence[Episode], failed: Mapping[int, str]) -> str:
    place = min(failed)
    return (
        f"env '{env.name}' failed at {len(failed)} of {len(episodes)} worked answers of the warm-up, and others take "
        f"their place. Row {episodes[place].index}: {failed[place]}"
    )


def unfinished_note(masks: Iterable[Sequence[int]], limit: int) -> str | None:
    """Returns a note on worked answers with a turn (a run of 1 in its mask) over `limit` tokens, or None."""
    turns = [max((sum(run) for learned, run in groupby(mask) if learned), default=0) for mask in masks]
    longer = sum(turn > limit for turn in turns)
    if not longer:
        return None
    return (
        f"{longer} of {len(turns)} worked answers of the warm-up have a turn of more than {limit} tokens, where "
        f"completions are cut: the policy learns what it cannot finish. The longest has {max(turns)}: "
        f"--max-completion-length {max(turns)}."
    )


def demonstrated(player: Player, episodes: Sequence[Episode], turn_tokens: int) -> list[Taught | Raised]:
    """Returns multi-turn demonstrations as rollouts, or why they fail; turns begin only if `turn_tokens` fit."""
    # Nobody reads what becomes of the last action.
    wanted = [(episode, episode.actions[: player.limits.turns][:-1]) for episode in episodes]
    prompts = encode_episodes(player.tokenizer, episodes)
    rollouts: list[Taught | Raised] = []
    for episode, prompt, done in zip(episodes, prompts, play_worked(player.envs, wanted, cuts=False), strict=True):
        if done.failed is not None:
            rollouts.append(done.failed)
            continue
        try:
            rollouts.append(_tokens(player, episode, prompt, done.turns, turn_tokens))
        except ValueError as error:
            rollouts.append(Raised(error))
    return rollouts


def _tokens(
    player: Player, episode: Episode, prompt: Sequence[int], turns: Sequence[WorkedTurn], turn_tokens: int
) -> Taught:
    ids, learned = list(prompt), [False] * len(prompt)
    most = len(prompt) + player.limits.tokens - turn_tokens
    for number, action in enumerate(episode.actions[: player.limits.turns]):
        text = _action_ids(player, action)
        ids, learned = ids + text, learned + [True] * len(text)
        if number == len(turns):  # the last action is not played
            break
        between = _between(player, turns[number], ids[-1])
        if between is None or len(ids) + len(between) > most:
            break
        ids, learned = ids + between, learned + [False] * len(between)
    return ids, learned


def _action_ids(player: Player, action: Action) -> list[int]:
    text = action if isinstance(action, str) else _tools(player).text(player.tokenizer, _call(action))
    return [*player.tokenizer(text, add_special_tokens=False)["input_ids"], player.tokenizer.eos_token_id]


def _between(player: Player, turn: WorkedTurn, last: int) -> list[int] | None:
    if turn.tool_answer is not None and not isinstance(turn.action, str):
        if turn.answer is not None:
            return None
        return _tools(player).ids(player.tokenizer, [_call(turn.action)], [turn.tool_answer], last)
    if turn.answer is None or turn.answer.ended:
        return None
    return player.form.ids(player.tokenizer, turn.answer.observation, last)


def _call(action: Mapping[str, Any]) -> ToolCall:
    return ToolCall(action["tool"], action["arguments"])


def _tools(player: Player) -> ToolFormat:
    if player.tools is None:
        raise ValueError("it calls a tool, and the environment offers none")
    return player.tools


def without_prefix(model: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Computes the prefix that all rows share once, with its gradient, and returns what is left to compute.

    `inputs`: `input_ids`, `labels` and `attention_mask`, [B, L], padded on the right; returned unchanged where the rows
    share too little or some layer does not attend fully, else `input_ids` and `labels` [B, L - P] with the cache of P.
    """
    ids, labels = inputs["input_ids"], inputs["labels"]
    shared = common_length(ids, labels)
    if len(ids) < 2 or shared < LEAST or not can_pack(model.config):
        return dict(inputs)
    cache = output_cache(model(input_ids=ids[:1, :shared], use_cache=True, logits_to_keep=1))
    cache.batch_repeat_interleave(len(ids))
    left = {name: inputs[name][:, shared:].contiguous() for name in ("input_ids", "labels")}
    return {**inputs, **left, cache_argument(model): cache}


def common_length(ids: torch.Tensor, labels: torch.Tensor) -> int:
    """Returns how many tokens all rows [B, L] share, without the one that predicts the first label."""
    alike = (ids == ids[:1]).all(dim=0) & (labels == IGNORED).all(dim=0)
    return max(int(alike.cumprod(dim=0).sum()) - 1, 0)
