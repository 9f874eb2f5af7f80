"""Agents' rollouts as OpenEnv's training traces: what is written is what was sampled, and reads back as it was."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from agent_run import agent_run, calls_bash, recorded, works
from click.testing import CliRunner
from made_run import made_rollout, made_run
from scripted_agents import played

from grpo.core.cli.main import cli
from grpo.core.policy.embedded import embedded_model_path
from grpo.core.policy.load import load_tokenizer
from grpo.core.record.agent_calls import agent_of
from grpo.core.record.browse import Rollout, from_table
from grpo.core.record.run_dir import RolloutRow, read_rollouts
from grpo.core.record.training_trace import Trace, read_trace, record_of, trace_of
from grpo.core.scoring.rows import read_rows
from grpo.plugins.errors import DatasetError, UsageError

Change = Callable[[dict[str, Any]], object]


def exported(row: RolloutRow, tmp_path: Path) -> Trace:
    run = made_run(tmp_path / "run", steps=1, groups=1, members=1, change=lambda _, number: row)
    (read,) = read_rollouts(run, 1)
    rollout: Rollout = from_table(0, read)
    record = agent_of(rollout.info)
    assert record is not None
    return trace_of(1, rollout, record, read["token_ids"], read["logprobs"])


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    run = agent_run(tmp_path_factory.mktemp("run") / "agents")
    done = CliRunner().invoke(cli, ["show", str(run.path), "--openenv-trace"], catch_exceptions=False)
    assert done.exit_code == 0
    assert done.stderr == "1 rollout left out: nothing in them trains\n"
    return done.stdout.splitlines()


def test_a_trace_has_the_ids_that_the_engine_was_asked_and_those_that_it_sampled(tmp_path: Path) -> None:
    tokenizer: Any = load_tokenizer(str(embedded_model_path()))
    (one,), rounds = played(tokenizer, works, calls_bash)
    trace = exported(recorded(made_rollout(1, 0, 0, 1.0), one), tmp_path)
    asked = [prompt for prompts in rounds.rounds for prompt in prompts]
    assert [tuple(turn.prompt_token_ids) for turn in trace.turns] == asked[1:6]  # neither the helper nor the lost one
    ids = [pair for branch in one.branches for pair in zip(branch.token_ids, branch.sampled, strict=True)]
    trained = sorted(token for token, own in ids if own)
    assert sorted(token for turn in trace.turns for token in turn.completion_token_ids) == trained
    assert tokenizer.decode(trace.turns[1].completion_token_ids) == "There are 3.<|im_end|>"
    nats = [-0.01 * place for place in range(len(trace.turns[1].completion_token_ids))]
    assert trace.turns[1].per_token_logps == pytest.approx(nats)


def test_messages_and_calls_of_tools_stand_in_the_form_of_chat_completions(lines: list[str]) -> None:
    _, second, *_ = json.loads(lines[0])["turns"]
    use, answer = second["request"]["messages"][2:]
    (call,) = use["tool_calls"]
    assert (use["role"], use["content"]) == ("assistant", "Let me look.")
    assert json.loads(call["function"]["arguments"]) == {"command": "wc -l a.txt"}
    assert (answer["role"], answer["tool_call_id"]) == ("tool", call["id"])
    assert second["response"]["choices"][0] == {
        "message": {"role": "assistant", "content": "There are 3."},
        "finish_reason": "stop",
    }


def test_what_was_written_reads_back_as_the_same_calls(lines: list[str]) -> None:
    trace = read_trace(json.loads(lines[0]))
    record = record_of(trace)
    assert [call.parent for call in record.tree] == [None, 0, 0, None, None]
    assert [call.root for call in record.tree] == ["tools", None, None, "system", "compacted"]
    assert [turn.role for turn in record.tree[2].new] == ["tool", "user"]
    assert (record.tokens_trained, record.tokens_untrained) == (97, 0)


def test_openenv_itself_takes_what_is_written(lines: list[str]) -> None:
    training = pytest.importorskip("openenv.core.harness.training")
    for line in lines:
        trace = training.TrainingTrace.model_validate_json(line)
        assert len(trace.turns) == 5
        assert read_trace(trace.model_dump()) == read_trace(json.loads(line))


def test_rewards_read_a_trace_as_they_read_the_rollout(lines: list[str]) -> None:
    row, *_ = read_rows([line.encode() for line in lines], "traces")
    assert row.completion.text == "3"  # what the program returned, which is no message of the policy
    assert row.completion.row["answer"] == "7"
    assert [message["role"] for message in row.completion.messages] == ["assistant"]
    assert row.completion.prompt[0]["content"].startswith("Ann has 3 pens")
    assert len(row.completion.token_ids) == len(row.completion.logprobs) == 97


def test_grpo_show_prints_a_file_of_traces_as_conversations(lines: list[str], tmp_path: Path) -> None:
    (tmp_path / "traces.jsonl").write_text("\n".join(lines))
    done = CliRunner().invoke(cli, ["show", str(tmp_path / "traces.jsonl"), "--limit", "1"], catch_exceptions=False)
    assert "#0  step 1, rollout 0, group 0, env gsm8k, reward 1.0, advantage 0.7\n5 calls, 97 tokens trained\n" in (
        done.output
    )
    assert "    call 2, continues call 0; trains" in done.output
    assert done.output.endswith("2 more: --limit 0 shows all\n")


def foreign(**changes: Any) -> dict[str, Any]:
    """A trace as another program may write it, with a mask that leaves out a token."""
    turn = {
        "node_id": "a",
        "prompt_token_ids": [1, 2],
        "completion_token_ids": [3, 4, 5],
        "per_token_logps": [-1, -0.5, 0.0],
        "loss_mask": [0, 0, 1, 0, 1],
        "request": {"messages": [{"role": "user", "content": [{"type": "text", "text": "2 + 2?"}]}], "tools": None},
        "response": {"choices": [{"message": {"role": "assistant", "content": "4"}, "finish_reason": "stop"}]},
        **changes,
    }
    return {"schema_version": 1, "turns": [turn]}


def test_a_trace_of_another_program_is_a_completion_with_the_tokens_that_train() -> None:
    (row,) = read_rows([json.dumps(foreign()).encode()], "traces")
    assert (row.completion.text, row.completion.prompt[0]["content"]) == ("4", "2 + 2?")
    assert (row.completion.token_ids, row.completion.logprobs) == ((3, 5), (-1.0, 0.0))
    record = record_of(read_trace(foreign()))
    assert (record.tokens_trained, record.tokens_untrained) == (2, 1)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"schema_version": 2, "turns": []}, "schema_version: Input should be 1"),
        ({"schema_version": 1, "turns": []}, "it has no turns"),
        ({"schema_version": 1, "turns": [], "reward": 1.0}, "reward: "),
        (foreign(reward=1.0), "turns.0.reward: "),
        (foreign(node_id=""), "has none"),
        (foreign(prompt_token_ids=[]), "no prompt_token_ids in turn 'a'"),
        (foreign(prompt_token_ids=[1.5, 2]), "turns.0.prompt_token_ids.0: "),
        (foreign(completion_token_ids=[3, -4, 5]), "a negative token id"),
        (foreign(per_token_logps=[-1.0, -0.5]), "2 log-probabilities for 3 sampled tokens"),
        (foreign(per_token_logps=[-1.0, -0.5, 0.5]), "positive or not finite"),
        (foreign(loss_mask=[1, 1, 1]), "a loss_mask of 3 for 2 and 3 tokens"),
        (foreign(loss_mask=[0, 1, 1, 0, 1]), "a loss_mask that is not 0 in the prompt"),
        (foreign(request={}), "the request of turn 'a' has no messages"),
        (foreign(response={"choices": []}), "the response of turn 'a' has no message"),
    ],
)
def test_what_is_no_trace_is_refused_with_the_place(values: dict[str, Any], reason: str) -> None:
    with pytest.raises(DatasetError, match="traces, line 1") as caught:
        list(read_rows([json.dumps(values).encode()], "traces"))
    assert reason in str(caught.value)


def without_prompts(info: dict[str, Any]) -> None:
    for call in info["agent"]["tree"]:
        del call["new_ids"]


def without_an_agent(info: dict[str, Any]) -> None:
    info.clear()


@pytest.mark.parametrize(
    ("change", "reason"),
    [(without_prompts, "does not hold the token ids of its prompts"), (without_an_agent, "no agent played it")],
)
def test_what_has_no_trace_says_why(change: Change, reason: str, tmp_path: Path) -> None:
    (one,), _ = played(load_tokenizer(str(embedded_model_path())), works, calls_bash)

    def changed(row: RolloutRow, _: int) -> RolloutRow:
        found = recorded(row, one)
        info = json.loads(found.info or "")
        change(info)
        return replace(found, info=json.dumps(info))

    run = made_run(tmp_path / "run", steps=1, groups=1, members=1, change=changed)
    with pytest.raises(UsageError, match=reason):
        CliRunner().invoke(cli, ["show", str(run.path), "--openenv-trace"], catch_exceptions=False)


@pytest.mark.parametrize("option", ["--step=1", "--json", "--wasted", "--openenv-trace", "--sort=reward"])
def test_options_of_runs_are_refused_for_a_file(option: str, tmp_path: Path) -> None:
    (tmp_path / "traces.jsonl").write_text(json.dumps(asdict(read_trace(foreign()))))
    with pytest.raises(UsageError, match=f"^{option.partition('=')[0]} is for a run"):
        CliRunner().invoke(cli, ["show", str(tmp_path / "traces.jsonl"), option], catch_exceptions=False)


@pytest.mark.parametrize(("text", "reason"), [("", "has no traces"), ("[1]", "line 1: it is no JSON object")])
def test_a_file_without_traces_is_refused(text: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "traces.jsonl").write_text(text)
    with pytest.raises((UsageError, DatasetError), match=reason):
        CliRunner().invoke(cli, ["show", str(tmp_path / "traces.jsonl")], catch_exceptions=False)


def test_rows_that_grpo_score_writes_of_a_run_have_no_token_ids_of_prompts(tmp_path: Path) -> None:
    run = agent_run(tmp_path / "agents")
    options = ["score", "--reward", "proximity", "--input", str(run.path), "--output", str(tmp_path / "rows.jsonl")]
    CliRunner().invoke(cli, options, catch_exceptions=False)
    first = json.loads((tmp_path / "rows.jsonl").read_text().splitlines()[0])
    assert first["info"]["agent"]["calls"] == 7
    assert "new_ids" not in first["info"]["agent"]["tree"][0]
