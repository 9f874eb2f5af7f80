"""Samples rollouts in parts: continues unfinished ones by a few tokens at a time.

Theory of operation. A rollout can be left at any token and continued by another version of the policy, from all tokens
so far, which the engine reads again. So every token has one version that sampled it. An answer is left in the middle;
where an environment is stepped, a turn that was begun is finished, and the environment waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING, Any

from grpo.core.env.env_batch import EnvShards
from grpo.core.env.episodes import Episode
from grpo.core.policy.chat_template import texts_of
from grpo.core.rollout.turns.play import PlayedRollout, Player, Trajectory, completed
from grpo.core.rollout.types import PromptIds, Rollouts, Sampled, SamplingParams

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

TO_THE_END = 2**62  # tokens


@dataclass(slots=True)
class PartialRollout:
    """A rollout that is under way, or has ended and waits for the others of its group."""

    start: Episode
    prompt: Sequence[int]
    state: PlayedRollout
    # (step, tokens): how many tokens the policy of which optimizer step sampled, in order
    sampled_by: list[tuple[int, int]] = field(default_factory=list)
    whole: Trajectory | None = None  # it came back from a checkpoint whole, with what its environment made of it
    _begun: tuple[int, int] = (0, 0)

    @property
    def ended(self) -> bool:
        """Whether nothing is sampled for it any more."""
        return self.whole is not None or self.state.finish is not None

    def begin_part(self) -> None:
        """Begins the next part with what is sampled from now on."""
        self._begun = len(self.state.tokens), len(self.state.chosen)

    @property
    def sampled(self) -> int:
        return len(self.state.chosen) - self._begun[1]

    @property
    def first_new(self) -> int:
        """The place of the first token of this part."""
        return self._begun[0]

    def end_part(self, step: int) -> None:
        """Notes that the policy of a step sampled this part."""
        before = 0
        if self.sampled_by and self.sampled_by[-1][0] == step:
            before = self.sampled_by.pop()[1]
        if before + self.sampled:
            self.sampled_by.append((step, before + self.sampled))

    def add(self, sampled: Sampled, most: int) -> None:
        """Adds tokens of an answer, which ends by itself or with `most` tokens."""
        self.state.add_sampled(sampled.token_ids, sampled.logprobs)
        if sampled.finish_reason == "stop" or len(self.state.tokens) >= most:
            self.state.finish = sampled.finish_reason

    def tokens_so_far(self) -> Trajectory:
        """Returns the tokens of an answer or of some turns, without what rewards read."""
        state = self.state
        nothing = completed(self.start, "", Sampled((), (), "length"))
        return Trajectory(tuple(state.tokens), tuple(state.logprobs), tuple(state.sampled), nothing)


@dataclass(eq=False)
class PartialRollouts:
    players: Mapping[str, Player | None]
    tokenizer: PreTrainedTokenizerBase
    params: SamplingParams  # how tokens are chosen; the length is that of an answer, or of one turn
    _numbers: count[int] = field(default_factory=count, init=False)
    _places: ExitStack = field(default_factory=ExitStack, init=False)

    def __post_init__(self) -> None:
        self._envs = {
            name: self._places.enter_context(EnvShards(player.envs)) for name, player in self.players.items() if player
        }

    def begun(self, episodes: Sequence[Episode], prompts: PromptIds) -> list[PartialRollout]:
        """Returns rollouts of episodes, whose environments are started where they are stepped."""
        rollouts = [
            PartialRollout(start, prompt, PlayedRollout(next(self._numbers), start, prompt))
            for start, prompt in zip(episodes, prompts, strict=True)
        ]
        self._start(rollouts)
        return rollouts

    def advance(self, members: Sequence[PartialRollout], rollouts: Rollouts, most: int, keys: Any = None) -> None:
        """Samples the next part of rollouts that have begun theirs; called again after it raised, it goes on.

        `most`: tokens of a part; a turn that was begun is finished. `keys`: of the random numbers of each member, if
        its own.
        """
        params = replace(self.params, keys=keys)
        for name, player in self.players.items():
            places = [place for place, member in enumerate(members) if member.start.env == name]
            if not places:
                continue
            if player is None:
                self._answer(members, places, rollouts, params, most)
            else:
                self._play(name, player, members, places, rollouts, params, most)

    def rewind(self, members: Iterable[PartialRollout], step: int) -> None:
        """Drops what the policy of a step sampled; where an environment was stepped, the rollout begins again."""
        again: list[PartialRollout] = []
        for member in members:
            gone = sum(tokens for by, tokens in member.sampled_by if by == step) + member.sampled
            member.sampled_by = [part for part in member.sampled_by if part[0] != step]
            if not gone:
                continue
            if self.players[member.start.env] is not None:
                if not member.ended:
                    self._envs[member.start.env].release(member.state.number)
                member.state = PlayedRollout(next(self._numbers), member.start, member.prompt)
                member.whole, member.sampled_by = None, []
                again.append(member)
            else:
                state = member.state
                for kept in (state.tokens, state.logprobs, state.sampled, state.chosen):
                    del kept[len(kept) - gone :]
                state.finish = None
            member.begin_part()
        self._start(again)

    def trajectory(self, rollout: PartialRollout, group: int) -> Trajectory:
        """Returns a rollout that has ended, as a member of a group of the batch that trains on it."""
        start = replace(rollout.start, group=group)
        if rollout.whole is not None:
            completion = replace(rollout.whole.completion, group=group)
            return replace(rollout.whole, completion=completion, sampled_by=tuple(rollout.sampled_by))
        state = rollout.state
        state.episode = start
        if self.players[rollout.start.env] is not None:
            return replace(state.trajectory(self.tokenizer.eos_token_id), sampled_by=tuple(rollout.sampled_by))
        (text,) = texts_of(self.tokenizer, [state.tokens])
        assert state.finish in ("stop", "length")
        answer = Sampled(tuple(state.tokens), tuple(state.logprobs), state.finish)
        return Trajectory(
            answer.token_ids,
            answer.logprobs,
            tuple(state.sampled),
            completed(start, text, answer),
            tuple(rollout.sampled_by),
        )

    def played(self, rollout: PartialRollout) -> bool:
        return self.players[rollout.start.env] is not None

    def close(self) -> None:
        self._places.close()

    def _start(self, members: Sequence[PartialRollout]) -> None:
        for name, envs in self._envs.items():
            player, own = self.players[name], [member.state for member in members if member.start.env == name]
            if player is not None and own:
                player.start(own, envs)
                for state in own:
                    if state.finish is not None:
                        envs.release(state.number)

    def _answer(
        self,
        members: Sequence[PartialRollout],
        places: Sequence[int],
        rollouts: Rollouts,
        params: SamplingParams,
        most: int,
    ) -> None:
        by_length: dict[int, list[int]] = {}
        for place in places:
            member = members[place]
            left = min(most - member.sampled, params.max_tokens - len(member.state.tokens))
            if left > 0:
                by_length.setdefault(left, []).append(place)
        for left, same in sorted(by_length.items()):
            asked = [[*members[place].prompt, *members[place].state.tokens] for place in same]
            done = rollouts.generate(asked, replace(params.of(same), max_tokens=left))
            for place, sampled in zip(same, done, strict=True):
                members[place].add(sampled, params.max_tokens)

    def _play(
        self,
        name: str,
        player: Player,
        members: Sequence[PartialRollout],
        places: Sequence[int],
        rollouts: Rollouts,
        params: SamplingParams,
        most: int,
    ) -> None:
        sample = rollouts.turns()
        for turn in count(1):
            going = [place for place in places if not members[place].ended and members[place].sampled < most]
            if not going:
                return
            states = [members[place].state for place in going]
            player.turn(states, sample, params.of(going, turn), self._envs[name])
