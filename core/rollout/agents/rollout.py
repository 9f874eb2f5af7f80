"""Turns a finished episode into a rollout: tokens that train, input of the rewards, and the record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, Literal

from grpo.core.agents.program import AgentExit
from grpo.core.env.episodes import Episode
from grpo.core.gateway.conversation import ChatTurn
from grpo.core.record.agent_calls import KEY, AgentRecord, RecordedCall, RecordedTurn, RecordedUse, as_info, as_text
from grpo.core.rollout.agents.desk import AgentEpisode
from grpo.core.rollout.agents.tree import Call, CallTree
from grpo.core.rollout.turns.play import LONGEST_FAILURE, Trajectory
from grpo.core.text.printable import shortened
from grpo.plugins.agents import AgentCall
from grpo.plugins.types import Completion, FinishReason, Message

Trains = Literal["main", "tree", "all"]
LONGEST = 16_384  # characters of a message that are recorded


@dataclass(frozen=True, slots=True)
class Choice:
    """Chooses the calls of an episode that train.

    `trains`: "main": the conversation of the task; "tree": also sub-agents; "all": also auxiliary calls, such as one
    for a title. `auxiliary`: whether a call is auxiliary; None: calls without tools, if others have tools.
    """

    trains: Trains = "tree"
    auxiliary: Callable[[AgentCall], bool] | None = None

    def of_task(self, tree: CallTree) -> list[Call]:
        """Returns the delivered calls that are not auxiliary."""
        calls = [call for call in tree.calls if call.delivered]
        if self.auxiliary is not None:
            own = [call for call in calls if not self.auxiliary(_view(call))]
        else:
            own = [call for call in calls if call.ask.tools]
        # Where all are auxiliary, all are the task's: a policy that was heard is trained and judged.
        return own or calls

    def takes(self, call: Call, own: Sequence[Call], main: str) -> bool:
        """Returns whether a call trains; `own`: the calls of the task, `main`: their conversation."""
        return self.trains == "all" or (call in own and (self.trains == "tree" or call.thread == main))


DEFAULT = Choice()


def _main(own: Sequence[Call]) -> str:
    """Returns the conversation that has most of the task's calls, of several the first."""
    counts = Counter(call.thread for call in own)
    return max(counts, key=lambda thread: counts[thread], default="")  # in the order of the first calls


def _view(call: Call) -> AgentCall:
    turns = call.ask.messages
    return AgentCall(
        system=next((turn.text for turn in turns if turn.role == "system"), None),
        text=next((turn.text for turn in reversed(turns) if turn.role == "user"), ""),
        tools=tuple(str(tool["function"]["name"]) for tool in call.ask.tools),
        thread=call.ask.thread,
    )


def trajectory_of(
    start: Episode, episode: AgentEpisode, ended: AgentExit, end: int, choice: Choice = DEFAULT
) -> Trajectory:
    """Returns the rollout of an ended episode; a failed one is the token `end`, which nobody chose."""
    tree = episode.tree
    own = choice.of_task(tree)
    main = _main(own)
    rows = tree.branches(lambda call: choice.takes(call, own, main))
    answered = [call for call in tree.calls if call.thread == main and call.delivered]
    failure = _failure(episode, ended, heard=bool(rows))
    chosen = [] if failure else [call for _, calls in rows for call in calls]
    info: dict[str, Any] = {KEY: as_info(_record(episode, ended, own, chosen)), "files": dict(ended.files)}
    if ended.graded is not None:
        info |= {"rewards": [ended.graded.reward], **ended.graded.final_info}
    finish: FinishReason = "stop"
    if failure:
        finish, info["failure"] = "error", failure
    elif ended.timed_out or episode.limited or (answered and _cut(answered[-1])):
        finish = "length"
    last = answered[-1].answer if answered else None
    answer = ended.answer if ended.answer is not None else last.text if last else ""
    completion = Completion(
        text=answer,
        messages=_messages(answered),
        prompt=start.prompt,
        row=start.row,
        token_ids=tuple(token for call in chosen for token in call.ids),
        logprobs=tuple(logprob for call in chosen for logprob in call.logprobs),
        finish_reason=finish,
        turns=max(1, len(answered)),
        info=info,
        env=start.env,
        group=start.group,
    )
    if failure:
        return Trajectory((end,), (0.0,), (False,), completion)
    branches = tuple(branch for branch, _ in rows)
    return Trajectory(
        tuple(token for branch in branches for token in branch.token_ids),
        tuple(logprob for branch in branches for logprob in branch.logprobs),
        tuple(chosen for branch in branches for chosen in branch.sampled),
        completion,
        branches=branches,
    )


def _failure(episode: AgentEpisode, ended: AgentExit, *, heard: bool) -> str:
    """Returns why an episode says nothing about the policy, in one line; "" where it does.

    A policy that was heard could choose to be left out, so only what is out of its reach excuses it.
    """
    if heard and not ended.outside:
        return ""
    if ended.problem:
        reason = f"the episode broke: {ended.problem}"
    else:
        how = "ran out of time" if ended.timed_out else f"ended with exit status {ended.code}"
        reason = f"the agent {how} and got no answer of the policy"
        lines = episode.refused or [line for line in reversed(ended.stderr.strip().splitlines()) if line.strip()]
        reason += f": {lines[0]}" if lines else "; it never asked for one"
    return shortened(" ".join(reason.split()), LONGEST_FAILURE)


def _record(episode: AgentEpisode, ended: AgentExit, own: Sequence[Call], trained: Sequence[Call]) -> AgentRecord:
    calls = episode.tree.calls
    ends = list(accumulate((len(call.ids) for call in trained), initial=0))
    starts = {id(call): start for call, start in zip(trained, ends, strict=False)}
    return AgentRecord(
        calls=len(calls),
        roots=dict(Counter(call.reason for call in calls if call.reason)),
        tokens_trained=ends[-1],
        tokens_untrained=sum(len(call.ids) for call in calls) - ends[-1],
        model_seconds=round(episode.waited, 3),
        own_seconds=round(max(0.0, ended.seconds - episode.waited), 3),
        exit=ended.code,
        timed_out=ended.timed_out,
        refused=tuple(episode.refused),
        stdout=ended.stdout,
        stderr=f"{ended.stderr}\n{ended.problem}".lstrip() if ended.problem else ended.stderr,
        tree=tuple(_recorded(call, starts.get(id(call)), call.delivered and call not in own) for call in calls),
        files_omitted=ended.files_omitted,
    )


def _recorded(call: Call, at: int | None, auxiliary: bool) -> RecordedCall:
    known = 0 if call.parent is None else len(call.parent.prompt) + len(call.parent.ids)
    old = 0 if call.parent is None else len(call.parent.ask.messages) + 1  # messages of the conversation before
    return RecordedCall(
        parent=None if call.parent is None else call.parent.number,
        root=call.reason,
        thread=call.thread,
        trains=at is not None,
        delivered=call.delivered,
        prompt_tokens=len(call.prompt),
        sampled_tokens=len(call.ids),
        finish=None if call.reply is None else call.reply.finish,
        seconds=round(call.seconds, 3),
        ignored=tuple(call.ask.ignored),
        new=tuple(_turn(turn) for turn in call.ask.messages[old:]),
        said=None if call.answer is None else _turn(call.answer),
        new_ids=call.prompt[known:],
        ids=() if at is not None else call.ids,
        at=at,
        auxiliary=auxiliary,
    )


def _turn(turn: ChatTurn) -> RecordedTurn:
    return replace(_whole(turn), text=shortened(turn.text, LONGEST))


def _whole(turn: ChatTurn) -> RecordedTurn:
    calls = (RecordedUse(call.name, dict(call.arguments)) for call in turn.calls)
    return RecordedTurn(turn.role, turn.text, tuple(calls))


def _messages(answered: Sequence[Call]) -> tuple[Message, ...]:
    if not answered:
        return ()
    last = answered[-1]
    turns = [*last.ask.messages[len(last.root.ask.messages) :], *([last.answer] if last.answer else [])]
    return tuple(Message(role=turn.role, content=as_text(_whole(turn))) for turn in turns)


def _cut(call: Call) -> bool:
    return call.reply is not None and call.reply.finish == "length"
