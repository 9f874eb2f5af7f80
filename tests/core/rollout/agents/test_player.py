"""Episodes of agent programs: what is trained is what was sampled, whatever a program makes of its history."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest
from scripted_agents import BASH, Chat, played, system, tool, user

from grpo.core.agents.program import AgentExit
from grpo.core.gateway.conversation import ChatTurn, Refused, Reply, ToolUse
from grpo.core.policy.embedded import embedded_model_path
from grpo.core.policy.load import load_tokenizer
from grpo.core.rollout.agents.rollout import Choice
from grpo.core.rollout.turns.play import Trajectory
from grpo.plugins.agents import AgentCall


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return load_tokenizer(str(embedded_model_path()))


def call(**arguments: Any) -> str:
    return f"<tool_call>{json.dumps({'name': 'bash', 'arguments': arguments})}</tool_call>"


def bash_then_text(prompt: str) -> str:
    """Asks for a command at first, and answers what it has read."""
    return "There are 3." if "tool_response" in prompt or "3 a.txt" in prompt else call(command="wc -l", shell="sh")


async def looks_once(chat: Chat) -> str | None:
    asked = (system("Use bash."), user(chat.task.instruction))
    first = await chat.ask(*asked, tools=(BASH,))
    last = await chat.ask(*asked, first.turn, tool("3 a.txt", first), tools=(BASH,))
    return last.turn.text


def trained(tokenizer: Any, one: Trajectory) -> list[str]:
    """The texts of the runs of tokens that train."""
    texts = []
    for branch in one.branches:
        runs: list[list[int]] = []
        for token, chosen, before in zip(branch.token_ids, branch.sampled, (False, *branch.sampled), strict=False):
            if chosen:
                runs[len(runs) :] = [] if before else [[]]
                runs[-1].append(token)
        texts += [tokenizer.decode(run) for run in runs]
    return texts


def roots(one: Trajectory) -> dict[str, int]:
    found: dict[str, int] = one.completion.info["agent"]["roots"]
    return found


def test_a_conversation_with_a_tool_is_one_row_of_the_sampled_tokens(tokenizer: Any) -> None:
    (one,), rounds = played(tokenizer, looks_once, bash_then_text)
    (branch,) = one.branches
    assert trained(tokenizer, one) == [call(command="wc -l", shell="sh") + "<|im_end|>", "There are 3.<|im_end|>"]
    (first,), (second,) = rounds.rounds
    assert (*branch.prompt,) == first
    assert (*branch.prompt, *branch.token_ids)[: len(second)] == second  # the ids that were sampled, and no others
    assert one.completion.text == "There are 3."
    assert one.completion.token_ids == tuple(t for t, s in zip(branch.token_ids, branch.sampled, strict=True) if s)
    assert roots(one) == {"first": 1}


def test_the_text_between_is_what_the_chat_template_puts_there(tokenizer: Any) -> None:
    (_one,), rounds = played(tokenizer, looks_once, bash_then_text)
    asked = {"type": "function", "function": {"name": "bash", "arguments": {"command": "wc -l", "shell": "sh"}}}
    messages = [
        {"role": "system", "content": "Use bash."},
        {"role": "user", "content": "Say how many lines a.txt has."},
        {"role": "assistant", "content": "", "tool_calls": [asked]},
        {"role": "tool", "name": "bash", "content": "3 a.txt"},
    ]
    whole = tokenizer.apply_chat_template(messages, tools=[BASH], add_generation_prompt=True, tokenize=False)
    between = tokenizer.decode(list(rounds.rounds[1][0]))
    assert between[between.index("</tool_call>") :] == whole[whole.index("</tool_call>") :]


@pytest.mark.parametrize("change", ["order", "ids", "blanks", "numbers"])
def test_what_programs_change_on_the_way_does_not_part_a_conversation(tokenizer: Any, change: str) -> None:
    def says(prompt: str) -> str:
        return "Done." if "3 a.txt" in prompt else "\n" + call(command="wc -l", lines=1.0, shell="sh")

    async def rewrites(chat: Chat) -> None:
        asked = (user(chat.task.instruction),)
        first = await chat.ask(*asked, tools=(BASH,))
        (use,) = first.turn.calls
        arguments = dict(reversed(list(use.arguments.items()))) if change == "order" else dict(use.arguments)
        if change == "numbers":
            arguments["lines"] = 1
        said = ChatTurn("assistant", " \n" if change == "blanks" else "", (replace(use, arguments=arguments),))
        answer = ChatTurn("tool", "3 a.txt", answers=use.id)
        if change == "ids":
            said, answer = replace(said, calls=(replace(use, id="x"),)), replace(answer, answers="x")
        await chat.ask(*asked, said, answer, tools=(BASH,))

    (one,), _ = played(tokenizer, rewrites, says)
    assert len(one.branches) == 1
    assert roots(one) == {"first": 1}


async def talks(chat: Chat, *texts: str) -> None:
    messages: list[ChatTurn] = [system("Talk."), user(chat.task.instruction)]
    for text in texts:
        said = await chat.ask(*messages)
        messages += [said.turn, user(text)]
    await chat.ask(*messages)


def counts(prompt: str) -> str:
    return f"Answer {prompt.count('<|im_start|>assistant')}."


def test_a_compacted_history_is_a_root_of_its_own_and_both_rows_train(tokenizer: Any) -> None:
    async def compacts(chat: Chat) -> None:
        await talks(chat, "more", "more")
        await chat.ask(system("Talk."), user("So far: three answers."))

    (one,), _ = played(tokenizer, compacts, counts)
    assert roots(one) == {"first": 1, "compacted": 1}
    assert trained(tokenizer, one) == [f"Answer {n}.<|im_end|>" for n in (1, 2, 3, 1)]
    assert [len(branch.prompt) > 0 for branch in one.branches] == [True, True]


def test_branches_of_one_conversation_train_what_they_share_once(tokenizer: Any) -> None:
    async def forks(chat: Chat) -> None:
        asked = (user(chat.task.instruction),)
        first = await chat.ask(*asked)
        await chat.ask(*asked, first.turn, user("left"))
        await chat.ask(*asked, first.turn, user("right"))

    (one,), _ = played(tokenizer, forks, counts)
    left, right = one.branches
    assert trained(tokenizer, one) == ["Answer 1.<|im_end|>", "Answer 2.<|im_end|>", "Answer 2.<|im_end|>"]
    assert right.prompt[: len(left.prompt)] == left.prompt  # what the second answer saw, with the first in it
    assert tokenizer.decode(list(right.prompt)).count("Answer 1.") == 1
    assert len(one.completion.token_ids) == sum(left.sampled) + sum(right.sampled)


@pytest.mark.parametrize(("trains", "chosen"), [("tree", "0111"), ("main", "0101"), ("all", "1111")])
def test_sub_agents_with_tools_train_and_helpers_without_do_not(tokenizer: Any, trains: Any, chosen: str) -> None:
    async def delegates(chat: Chat) -> None:
        await chat.ask(system("Give a title."), user(chat.task.instruction))
        asked = (system("Use bash."), user(chat.task.instruction))
        first = await chat.ask(*asked, tools=(BASH,))
        sub = await chat.ask(system("You are a sub-agent."), user("3 a.txt"), tools=(BASH,))
        await chat.ask(*asked, first.turn, tool(sub.turn.text, first), tools=(BASH,))

    (one,), _ = played(tokenizer, delegates, bash_then_text, choice=Choice(trains))
    assert roots(one) == {"first": 1, "tools": 1, "system": 1}
    calls = one.completion.info["agent"]["tree"]
    assert [part["trains"] for part in calls] == [mark == "1" for mark in chosen]
    assert len(one.branches) == chosen.count("1") - 1


@pytest.mark.parametrize(("named", "chosen"), [("memory", "01"), ("", "11")])
def test_the_calls_that_a_plugin_calls_auxiliary_do_not_train_unless_all_are(
    tokenizer: Any, named: str, chosen: str
) -> None:
    """A memory has tools and asks first, so nothing but the plugin knows it."""

    async def remembers(chat: Chat) -> None:
        await chat.ask(system("Keep the memory."), user(chat.task.instruction), tools=(BASH,))
        await chat.ask(system("Use bash."), user(chat.task.instruction), tools=(BASH,))

    calls: list[AgentCall] = []

    def auxiliary(call: AgentCall) -> bool:
        calls.append(call)
        return named in (call.system or "")

    (one,), _ = played(tokenizer, remembers, bash_then_text, choice=Choice(auxiliary=auxiliary))
    assert [part["trains"] for part in one.completion.info["agent"]["tree"]] == [mark == "1" for mark in chosen]
    assert [(call.system, call.tools) for call in calls] == [("Keep the memory.", ("bash",)), ("Use bash.", ("bash",))]
    assert calls[0].text == "Say how many lines a.txt has."


@pytest.mark.parametrize("receives", [False, True])
def test_who_asks_again_gets_what_was_sampled_unless_it_had_it(tokenizer: Any, receives: bool) -> None:
    async def retries(chat: Chat) -> None:
        first = await chat.ask(user("?"), receives=receives)
        again = await chat.ask(user("?"))
        assert first.turn == again.turn

    (one,), rounds = played(tokenizer, retries, counts)
    assert sum(map(len, rounds.rounds)) == (2 if receives else 1)
    assert len(one.branches) == (2 if receives else 1)
    assert len(set(rounds.keys)) == len(rounds.keys)  # the second answer has random numbers of its own


def test_what_nobody_received_does_not_train(tokenizer: Any) -> None:
    async def goes_away(chat: Chat) -> None:
        await chat.ask(user("first"))
        await chat.ask(user("second"), receives=False)

    (one,), _ = played(tokenizer, goes_away, counts)
    assert len(one.branches) == 1
    assert [part["delivered"] for part in one.completion.info["agent"]["tree"]] == [True, False]


def test_stop_texts_cut_after_the_token_that_completes_them(tokenizer: Any) -> None:
    async def stops(chat: Chat) -> None:
        reply = await chat.ask(user("?"), stop=("END",))
        assert (reply.turn.text, reply.finish, reply.stopped_by) == ("One.", "stop", "END")
        await chat.ask(user("?"), reply.turn, user("go on"))

    (one,), _ = played(tokenizer, stops, lambda prompt: "One. END and more" if "One" not in prompt else "Two.")
    first, second = trained(tokenizer, one)
    assert first.startswith("One. END")
    assert "more" not in first
    assert second == "Two.<|im_end|>"
    assert roots(one) == {"first": 1}


def test_several_answers_are_siblings(tokenizer: Any) -> None:
    async def wants_three(chat: Chat) -> None:
        await chat.ask(user("?"), count=3)

    (one,), rounds = played(tokenizer, wants_three, counts)
    assert [len(r) for r in rounds.rounds] == [3]
    assert len(one.branches) == 3


def test_a_round_waits_for_every_program_and_repeats(tokenizer: Any) -> None:
    import asyncio
    import random

    async def dawdles(chat: Chat) -> None:
        messages: list[ChatTurn] = [user(chat.task.instruction)]
        for _ in range(3):
            await asyncio.sleep(random.random() * 0.05)
            said: Reply = await chat.ask(*messages)
            messages += [said.turn, user("more")]

    tries = [played(tokenizer, dawdles, counts, count=4) for _ in range(2)]
    assert [len(r) for r in tries[0][1].rounds] == [4, 4, 4]
    assert tries[0][1].rounds == tries[1][1].rounds
    assert tries[0][1].keys == tries[1][1].keys
    assert len(set(tries[0][1].keys)) == 12


def test_a_program_that_was_never_answered_is_a_failure_with_its_reason(tokenizer: Any) -> None:
    async def breaks(chat: Chat) -> None:
        raise FileNotFoundError("settings.json")

    (one,), _ = played(tokenizer, breaks, counts)
    assert one.completion.finish_reason == "error"
    assert "settings.json" in one.completion.info["failure"]
    assert not any(one.sampled)


def test_a_program_that_breaks_later_is_judged_as_it_stands(tokenizer: Any) -> None:
    async def breaks(chat: Chat) -> None:
        await chat.ask(user("?"))
        raise ValueError

    (one,), _ = played(tokenizer, breaks, counts)
    assert (one.completion.finish_reason, one.completion.text) == ("stop", "Answer 1.")


def test_a_program_that_hangs_is_ended_by_its_own_time_alone(tokenizer: Any) -> None:
    import asyncio

    async def hangs(chat: Chat) -> None:
        await chat.ask(user("?"))
        await asyncio.sleep(3600)

    (one,), _ = played(tokenizer, hangs, counts, seconds=0.3)
    assert one.completion.finish_reason == "length"
    assert one.completion.info["agent"]["timed_out"]


@pytest.mark.parametrize(
    ("options", "status", "says"),
    [({"model": "gpt-5"}, 404, "there is: policy"), ({"key": "grpo-0"}, 401, "no episode has this key")],
)
def test_wrong_names_are_refused(tokenizer: Any, options: dict[str, str], status: int, says: str) -> None:
    seen: list[Refused] = []

    async def asks_wrongly(chat: Chat) -> None:
        changed = Chat(chat.desk, chat.task, replace(chat.access, **options))
        try:
            await changed.ask(user("?"))
        except Refused as error:
            seen.append(error)
            raise

    (one,), _ = played(tokenizer, asks_wrongly, counts)
    assert seen[0].status == status
    assert says in str(seen[0])
    assert one.completion.finish_reason == "error"


def test_limits_of_calls_tokens_and_context_end_an_episode_as_cut(tokenizer: Any) -> None:
    from grpo.core.rollout.agents.desk import CallLimits

    async def goes_on(chat: Chat) -> None:
        await talks(chat, *["more " * 20] * 30)

    for limits in (
        CallLimits(calls=3, sampled=60, total=600, context=4096),
        CallLimits(calls=99, sampled=60, total=20, context=4096),
        CallLimits(calls=99, sampled=60, total=6000, context=120),
    ):
        (one,), rounds = played(tokenizer, goes_on, counts, limits=limits)
        assert one.completion.finish_reason == "length"
        assert one.completion.info["agent"]["refused"]
        assert 1 < len(rounds.rounds) < 10


def test_a_name_of_a_tool_that_does_not_exist_reaches_the_program(tokenizer: Any) -> None:
    said = '<tool_call>{"name": "a\\"<|im_end|>", "arguments": {}}</tool_call>'

    async def answers(chat: Chat) -> None:
        first = await chat.ask(user("?"), tools=(BASH,))
        assert isinstance(first.turn.calls[0], ToolUse)
        await chat.ask(user("?"), first.turn, tool("no such tool <|im_end|>", first), tools=(BASH,))

    (one,), _rounds = played(tokenizer, answers, lambda prompt: "Fine." if "no such" in prompt else said)
    assert len(one.branches) == 1, roots(one)
    assert one.completion.text == "Fine."


@pytest.mark.parametrize(("asks", "outside", "failed"), [(1, False, False), (1, True, True), (0, False, True)])
def test_a_policy_that_was_heard_cannot_choose_to_be_left_out(
    tokenizer: Any, asks: int, outside: bool, failed: bool
) -> None:
    async def breaks(chat: Chat) -> AgentExit:
        for _ in range(asks):
            await chat.ask(user(chat.task.instruction))
        return AgentExit(None, False, 0.0, problem="its supervisor was killed", outside=outside)

    (one,), _ = played(tokenizer, breaks, counts)
    assert ("failure" in one.completion.info) == failed
    assert (one.completion.finish_reason, one.completion.text) == (
        ("error", "Answer 1." * asks) if failed else ("stop", "Answer 1.")
    )
    assert one.completion.info["agent"]["stderr"] == "its supervisor was killed"


def test_a_request_of_several_answers_that_outlives_its_episode_holds_nothing_up(tokenizer: Any) -> None:
    left: list[Any] = []

    async def leaves(chat: Chat) -> str:
        left.append(asyncio.create_task(chat.ask(user("for later"), count=3)))
        await asyncio.sleep(0)
        return ""

    (one,), rounds = played(tokenizer, leaves, counts)
    assert one.completion.info["failure"].endswith("got no answer of the policy; it never asked for one")
    assert rounds.rounds == []
    assert isinstance(left[0].exception(), Refused)


def test_what_is_recorded_of_refusals_is_bounded(tokenizer: Any) -> None:
    async def shouts(chat: Chat) -> None:
        shouting = Chat(chat.desk, chat.task, replace(chat.access, model="\x1b[31m" + "no" * 100_000))
        for _ in range(20):
            with pytest.raises(Refused, match="there is no model"):
                await shouting.ask(user("x"))
        await chat.ask(user("x"))

    (one,), _ = played(tokenizer, shouts, counts)
    refused = one.completion.info["agent"]["refused"]
    assert len(refused) == 8
    assert {"\x1b" in text or len(text) > 300 for text in refused} == {False}
