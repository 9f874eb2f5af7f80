"""The judge over real HTTP: what it asks, what it remembers, what it costs, and when it gives up."""

import asyncio
import json
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from patience import PATIENCE, Clock, wait_for

from grpo.core.scoring.outcome import Outcome
from grpo.core.scoring.scorer import Scorer
from grpo.plugins._spec.binding import BoundReward
from grpo.plugins.host import Host
from grpo.plugins.types import Completion, Message
from grpo.rewards.judge import reward as judge_module
from tests.rewards.conftest import StandIn, StandInHandler

pytestmark = pytest.mark.usefixtures("judge_key")
ROW = {"question": "What is the capital of France?", "answer": "Paris"}


def test_the_cases_score_what_they_say(stand_in: StandIn, outcomes: Callable[..., list[Outcome]]) -> None:
    for case in judge_module.judge.cases:
        [outcome] = outcomes(stand_in, [case.completion], case.row)
        assert outcome.score == case.expect


def test_the_points_are_a_share_of_the_highest(
    stand_in: StandIn, judges: dict[str, Any], outcomes: Callable[..., list[Outcome]]
) -> None:
    stand_in.brain = lambda messages: judges["verdict"](messages, 3)
    assert outcomes(stand_in, ["x"], points=4)[0].score == 0.75
    assert outcomes(stand_in, ["x"])[0].score == 0.3
    assert outcomes(stand_in, ["x"], points=3)[0].score == 1.0
    assert "from 0 to 2" in outcomes(stand_in, ["x"], points=2)[0].reason


def test_the_request_names_model_temperature_limit_and_schema(
    stand_in: StandIn, outcomes: Callable[..., list[Outcome]], judge_key: str
) -> None:
    outcomes(stand_in, ["Paris"], rubric="Is it {true}?", points=2, max_tokens=50)
    [body] = stand_in.bodies
    assert (body["model"], body["temperature"], body["max_tokens"]) == ("stand-in", 0.0, 50)
    asked = body["response_format"]
    assert asked["type"] == "json_schema"
    assert asked["json_schema"]["strict"] is True
    assert asked["json_schema"]["schema"]["properties"]["points"]["enum"] == [0, 1, 2]
    assert [message["role"] for message in body["messages"]] == ["system", "user"]
    assert "Is it {true}?" in body["messages"][0]["content"]
    assert stand_in.headers[0]["Authorization"] == f"Bearer {judge_key}"


def test_the_temperature_can_be_left_to_the_server(stand_in: StandIn, outcomes: Callable[..., list[Outcome]]) -> None:
    outcomes(stand_in, ["Paris"], temperature=None, structured=False)
    assert not {"temperature", "response_format"} & set(stand_in.bodies[0])


def test_the_judge_sees_the_prompt_or_else_the_question_and_the_reference(
    stand_in: StandIn, bound: Callable[..., BoundReward]
) -> None:
    prompt = (Message(role="system", content="Be brief."), Message(role="user", content="Capital?"))
    talk = (Message(role="assistant", content="Hm."), Message(role="user", content="So?"))
    last = (Message(role="assistant", content="Paris"),)
    with Scorer([bound(stand_in)]) as scorer:
        scorer.score([Completion("Paris", prompt=prompt, row=ROW)])
        scorer.score([Completion("Paris", row={"question": None})])
        scorer.score([Completion("Paris", messages=(*talk, *last), prompt=prompt[1:], row=ROW, turns=2)])
    texts = [body["messages"][1]["content"] for body in stand_in.bodies]
    assert "task begins\n| system: Be brief.\n| \n| user: Capital?\n" in texts[0]
    assert "reference answer begins\n| Paris\n" in texts[0]
    assert "task" not in texts[1]
    assert "reference" not in texts[1]
    assert " answer begins\n| assistant: Hm.\n| \n| user: So?\n| \n| assistant: Paris\n" in texts[2]
    assert "task begins\n| Capital?\n" in texts[2]


def test_the_mark_is_drawn_anew_for_each_request(stand_in: StandIn, outcomes: Callable[..., list[Outcome]]) -> None:
    outcomes(stand_in, ["a", "b", "c"])
    marks = {body["messages"][1]["content"].split("\n")[0] for body in stand_in.bodies}
    assert len(marks) == 3


def test_a_blank_completion_scores_0_without_a_question(
    stand_in: StandIn, outcomes: Callable[..., list[Outcome]]
) -> None:
    assert outcomes(stand_in, [" \n"])[0].score == 0.0
    assert stand_in.bodies == []


def test_a_null_answer_is_judged_without_a_reference_like_a_missing_one(
    stand_in: StandIn, outcomes: Callable[..., list[Outcome]]
) -> None:
    for row in ({"question": "Capital?", "answer": None}, {"question": "Capital?"}):
        [outcome] = outcomes(stand_in, ["Paris"], row, cache=False)
        assert outcome.kind == "score"
    assert not any("reference answer begins" in body["messages"][1]["content"] for body in stand_in.bodies)
    assert all("| Paris" in body["messages"][1]["content"] for body in stand_in.bodies)
    assert len(stand_in.bodies) == 2


def test_of_a_very_long_completion_the_judge_sees_both_ends_and_is_told(
    stand_in: StandIn, outcomes: Callable[..., list[Outcome]]
) -> None:
    [outcome] = outcomes(stand_in, ["Paris" + "x" * 1000 + "end"], max_characters=20)
    assert outcome.score == 1.0
    text = stand_in.bodies[0]["messages"][1]["content"]
    assert " answer begins\n| Parisxxxxx\n" in text
    assert " rest of the answer, 988 characters later, begins\n| xxxxxxxend\n" in text


@pytest.mark.core
def test_transient_failures_are_retried_and_what_is_left_is_masked(
    stand_in: StandIn, outcomes: Callable[..., list[Outcome]]
) -> None:
    brief = {"Retry-After-Ms": "10"}
    stand_in.script = [(429, {}, brief), (503, {}, brief), (500, {}, brief), "drop"]
    assert outcomes(stand_in, ["Paris"], retries=4)[0].score == 1.0
    assert len(stand_in.bodies) == 5
    stand_in.script = [(503, {"error": "busy"}, brief)] * 3
    [outcome] = outcomes(stand_in, ["so, Paris"], retries=2)
    assert outcome.kind == "failure"
    assert "503" in outcome.reason
    assert len(stand_in.bodies) == 8


def test_what_is_not_transient_is_not_retried(stand_in: StandIn, outcomes: Callable[..., list[Outcome]]) -> None:
    for status in (400, 401, 403, 404):
        stand_in.script = [(status, {"error": {"message": "no"}}, {})]
        before = len(stand_in.bodies)
        assert str(status) in outcomes(stand_in, ["Paris"], retries=3)[0].reason
        assert len(stand_in.bodies) == before + 1


def test_a_failure_is_not_remembered_and_a_verdict_is(stand_in: StandIn, bound: Callable[..., BoundReward]) -> None:
    with Scorer([bound(stand_in)], retries=0) as scorer:
        completion = [Completion("Paris", row=ROW)]
        stand_in.script = [(400, {}, {}), (200, {"choices": []}, {})]
        kinds = [scorer.score(completion)["judge"][0] for _ in range(4)]
    assert [outcome.kind for outcome in kinds] == ["failure", "failure", "score", "score"]
    assert len(stand_in.bodies) == 3
    assert kinds[2].metrics == {"prompt_tokens": 100, "completion_tokens": 20, "cached": 0.0}
    assert kinds[3].metrics == {"prompt_tokens": 0, "completion_tokens": 0, "cached": 1.0}


def test_equal_completions_of_a_batch_cost_one_question_unless_the_cache_is_off(
    stand_in: StandIn, outcomes: Callable[..., list[Outcome]]
) -> None:
    stand_in.delay = 0.05
    assert [o.score for o in outcomes(stand_in, ["Paris"] * 6 + ["Lyon"])] == [1.0] * 6 + [0.0]
    assert len(stand_in.bodies) == 2
    assert [o.score for o in outcomes(stand_in, ["Paris"] * 3, cache=False)] == [1.0] * 3
    assert len(stand_in.bodies) == 5


def test_what_is_remembered_holds_for_the_same_material_and_settings_only(
    stand_in: StandIn, outcomes: Callable[..., list[Outcome]]
) -> None:
    for options in ({}, {"rubric": "other"}, {"points": 5}, {"temperature": 1.0}, {"model": "other"}):
        outcomes(stand_in, ["Paris"], **options)
    outcomes(stand_in, ["Paris"], {"question": "Another?", "answer": "Paris"})
    assert len(stand_in.bodies) == 6
    outcomes(stand_in, ["Paris"], input_price=1.0, max_concurrency=2)
    assert len(stand_in.bodies) == 6


def test_the_cost_follows_from_tokens_and_prices(stand_in: StandIn, outcomes: Callable[..., list[Outcome]]) -> None:
    [outcome] = outcomes(stand_in, ["Paris"], input_price=2.0, output_price=10.0)
    assert outcome.metrics["cost"] == pytest.approx((100 * 2 + 20 * 10) / 1e6)


def test_a_server_that_counts_no_tokens_gives_no_such_metrics(
    stand_in: StandIn, judges: dict[str, Any], monkeypatch: pytest.MonkeyPatch, outcomes: Callable[..., list[Outcome]]
) -> None:
    monkeypatch.setattr("secrets.token_hex", lambda size: "5" * (2 * size))
    text = json.dumps({"mark": "5" * 32, "reasoning": "", "points": 10})
    for usage in (None, {"prompt_tokens": None, "completion_tokens": -1, "total_tokens": 0}):
        stand_in.script = [(200, {**judges["reply"](text), "usage": usage}, {})]
        [outcome] = outcomes(stand_in, ["Paris"], cache=False)
        assert (outcome.score, outcome.metrics) == (1.0, {})


def test_no_more_requests_run_at_once_than_allowed(
    stand_in: StandIn, outcomes: Callable[..., list[Outcome]], judges: dict[str, Any]
) -> None:
    three = threading.Barrier(3, timeout=PATIENCE)  # three requests run at once, or none is answered

    def judge(messages: list[dict[str, Any]]) -> Any:
        three.wait()
        return judges["faithful"](messages)

    stand_in.brain = judge
    texts = [f"Paris {n}" for n in range(12)]
    assert [o.score for o in outcomes(stand_in, texts, max_concurrency=3)] == [1.0] * 12
    assert stand_in.most_at_once == 3


def test_a_server_without_schemas_is_asked_without_one_and_still_read_strictly(
    stand_in: StandIn, judges: dict[str, Any], bound: Callable[..., BoundReward]
) -> None:
    complaint = {"error": {"message": "Invalid parameter: 'response_format' of type 'json_schema' is not supported."}}
    stand_in.script = [(400, complaint, {})]
    with Scorer([bound(stand_in)], retries=0) as scorer:
        first = scorer.score([Completion("Paris", row=ROW)])["judge"]
        stand_in.brain = lambda messages: "10 points"
        second = scorer.score([Completion("Paris!", row=ROW)])["judge"]
    assert (first[0].score, second[0].kind) == (1.0, "failure")
    assert ["response_format" in body for body in stand_in.bodies] == [True, False, False]


def test_a_server_that_wants_the_newer_name_of_the_limit_gets_it(
    stand_in: StandIn, outcomes: Callable[..., list[Outcome]]
) -> None:
    complaint = {"error": {"message": "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."}}
    stand_in.script = [(400, complaint, {})]
    assert outcomes(stand_in, ["Paris"], max_tokens=77)[0].score == 1.0
    assert stand_in.bodies[1]["max_completion_tokens"] == 77
    assert "max_tokens" not in stand_in.bodies[1]


@pytest.mark.slow
def test_a_request_that_hangs_is_ended_at_its_limit(
    stand_in: StandIn, outcomes: Callable[..., list[Outcome]], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch, "asyncio.base_events")
    stand_in.script = ["hang"]
    clock.forward_after(lambda: len(stand_in.bodies) == 1)
    [outcome] = outcomes(stand_in, ["Paris"], request_timeout=PATIENCE)
    assert "no complete reply within 60 s" in outcome.reason
    assert wait_for(lambda: stand_in.hung_up == 1)
    stand_in.script = ["hang"]
    clock.forward_after(lambda: len(stand_in.bodies) == 2)
    assert outcomes(stand_in, ["Paris"], request_timeout=PATIENCE, retries=1)[0].score == 1.0
    assert wait_for(lambda: stand_in.hung_up == 2)


def test_a_reply_that_drips_is_ended_too(
    stand_in: StandIn, judges: dict[str, Any], bound: Callable[..., BoundReward]
) -> None:
    """Each byte comes in time, and the whole never does: only a limit for the whole ends that."""
    stand_in.brain = lambda messages: judges["verdict"](messages, 10)

    class Dripping(StandInHandler):
        def send_bytes(self, status: int, data: bytes, headers: dict[str, str]) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            for i in range(len(data)):
                self.wfile.write(data[i : i + 1])
                time.sleep(0.05)

    reward = bound(stand_in, request_timeout=0.4)
    stand_in.RequestHandlerClass = Dripping
    with Scorer([reward], retries=0) as scorer:
        [outcome] = scorer.score([Completion("Paris", row=ROW)])["judge"]
    assert "no complete reply within 0.4 s" in outcome.reason


@pytest.mark.slow
def test_the_time_limit_of_the_call_ends_the_request(
    stand_in: StandIn, bound: Callable[..., BoundReward], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch, "asyncio.base_events", "grpo.core.scoring.loop")
    stand_in.script = ["hang"]
    clock.forward_after(lambda: stand_in.bodies)
    table = {"name": "judge", "timeout": PATIENCE, "options": bound(stand_in, request_timeout=20 * PATIENCE).options}
    with Scorer([Host.discover().reward(table)], retries=0) as scorer:
        [late] = scorer.score([Completion("Paris", row=ROW)])["judge"]
        assert wait_for(lambda: stand_in.hung_up)
        [fine] = scorer.score([Completion("Paris!", row=ROW)])["judge"]
    assert [late.kind, fine.kind] == ["failure", "score"]
    assert "time limit of 60 s" in late.reason


def test_closing_the_scorer_hangs_up(stand_in: StandIn, bound: Callable[..., BoundReward]) -> None:
    stand_in.script = ["hang"] * 2
    reward = bound(stand_in)
    scorer = Scorer([reward], retries=0)
    found = []
    thread = threading.Thread(
        target=lambda: found.extend(scorer.score([Completion(f"{n}", row=ROW) for n in range(2)])["judge"])
    )
    thread.start()
    assert wait_for(lambda: len(stand_in.bodies) == 2)
    scorer.close()
    thread.join(PATIENCE)
    assert [outcome.kind for outcome in found] == ["failure", "failure"]
    assert wait_for(lambda: stand_in.hung_up == 2)


def test_each_loop_closes_its_connections(stand_in: StandIn, bound: Callable[..., BoundReward]) -> None:
    from grpo.rewards.judge import client as judge_client

    reward = bound(stand_in)

    async def twice() -> tuple[float | None, float | None]:
        first = await reward.call(Completion("Paris", row=ROW))
        second = await reward.call(Completion("Lyon", row=ROW))
        return first.score, second.score

    assert asyncio.run(twice()) == (1.0, 0.0)
    assert asyncio.run(twice()) == (1.0, 0.0)
    assert judge_client._loops == {}
