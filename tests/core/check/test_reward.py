"""Checks find what is planted, hold for the built-in rewards, and fail published variants where they are known to."""

from __future__ import annotations

import textwrap
import threading
from pathlib import Path
from typing import Any

import pytest
from planted_plugin import errors, planted

from grpo import Case, check_reward, check_verifier
from grpo.plugins.errors import OptionError, PluginError
from grpo.plugins.host import Host


def test_an_honest_reward_keeps_every_relation(tmp_path: Path) -> None:
    report = check_reward(
        planted(
            tmp_path,
            """
            @reward(version=1, range=(0.0, 1.0), cases=[RIGHT, WRONG])
            def mine(completion: str, answer: str) -> float:
                return right(completion, answer)
            """,
        )
    )
    assert report.findings == ()
    assert {"running event loop", "thousands comma", "1 MB of text", "alternatives"} <= set(report.relations)
    report.require()


# source of `mine` after the decorator, and the errors that it must cause and nothing else
BODIES: dict[str, tuple[str, set[str]]] = {
    "an alarm that is swallowed off the main thread": (
        """
        def mine(completion: str, answer: str) -> float:
            try:
                signal.alarm(0), signal.signal(signal.SIGALRM, signal.SIG_DFL)
            except ValueError:
                return 0.0
            return right(completion, answer)
        """,
        {"worker thread"},
    ),
    "a score that is different inside a loop": (
        """
        def mine(completion: str, answer: str) -> float:
            try:
                asyncio.get_running_loop()
            except RuntimeError:
                return right(completion, answer)
            return 0.0
        """,
        {"running event loop"},
    ),
    "state between calls": (
        """
        def mine(completion: str, answer: str, *, seen: dict = {}) -> float:
            seen[completion, answer] = seen.get((completion, answer), 0) + 1
            return right(completion, answer) if seen[completion, answer] < 6 else 0.0
        """,
        {"repeated call", "batch of one", "permuted batch", "worker thread", "worker process", "running event loop"},
    ),
    "a crash on an empty text": (
        """
        def mine(completion: str, answer: str) -> float:
            return right(completion, answer) + 0 * ord(completion[0])
        """,
        {"no crash"},
    ),
    "a score out of range": (
        """
        def mine(completion: str, answer: str) -> float:
            return right(completion, answer) - (not completion.strip())
        """,
        {"range"},
    ),
    "a process that ends": (
        """
        def mine(completion: str, answer: str) -> float:
            if not completion:
                os._exit(1)
            return right(completion, answer)
        """,
        {"no crash"},
    ),
    "a hang on long texts": (
        """
        def mine(completion: str, answer: str) -> float:
            while len(completion) > 900_000 and completion[:3] == "777":
                pass
            return right(completion, answer)
        """,
        {"no crash"},
    ),
    "pay for naming the answer": (
        """
        def mine(completion: str, answer: str) -> float:
            return float(str(answer) in completion.replace(",", ""))
        """,
        {"alternatives", "every number"},
    ),
    "one spelling of a number": (
        """
        def mine(completion: str, answer: str) -> float:
            return float(completion.split(" is ")[-1].strip() == answer)
        """,
        {"thousands comma", "trailing zero", "currency sign"},
    ),
    "a near answer that pays in full": (
        """
        def mine(completion: str, answer: str) -> float:
            return max(right(completion, answer), right(completion, str(float(answer or "nan") + 1)))
        """,
        {"near"},
    ),
    "a gold that is missing": (
        """
        def mine(completion: str, answer: str) -> float:
            return right(completion, answer) if answer else 1.0
        """,
        {"unusable gold"},
    ),
}


@pytest.mark.core
@pytest.mark.parametrize("fault", BODIES)
def test_a_planted_fault_is_found_and_nothing_else(fault: str, tmp_path: Path) -> None:
    source, expected = BODIES[fault]
    limit = 1.0 if fault == "a hang on long texts" else 60.0
    decorator = f"@reward(version=1, range=(0.0, 1.0), timeout={limit}, cases=[RIGHT, WRONG])"
    report = check_reward(planted(tmp_path, decorator + textwrap.dedent(source)))
    if fault == "state between calls":  # which of the repetitions is the sixth depends on the order of the relations
        assert errors(report)
        assert errors(report) <= expected
    else:
        assert errors(report) == expected, str(report)


def test_a_batch_reward_that_compares_neighbours_is_found(tmp_path: Path) -> None:
    spec = planted(
        tmp_path,
        """
        @reward(version=1, range=(0.0, 1.0), batch=True, cases=[RIGHT, WRONG])
        def mine(completions: list[str], answer: list[str]) -> list[float]:
            scores = [right(c, a) for c, a in zip(completions, answer)]
            return [score if len(scores) > 1 else 0.0 for score in scores]
        """,
    )
    assert "batch of one" in errors(check_reward(spec))


def test_a_whole_completion_may_not_do_without_its_column_nor_change_it(tmp_path: Path) -> None:
    spec = planted(
        tmp_path,
        """
        @reward(version=1, range=(0.0, 1.0), cases=[RIGHT, WRONG])
        def mine(completion: Completion) -> float:
            score = right(completion.text, completion.row.get("answer", "-1"))
            completion.row["seen"] = True
            return score
        """,
    )
    assert errors(check_reward(spec)) == {"missing column", "row unchanged"}


def test_an_async_reward_is_checked(tmp_path: Path) -> None:
    spec = planted(
        tmp_path,
        """
        @reward(version=1, range=(0.0, 1.0), cases=[RIGHT, WRONG])
        async def mine(completion: str, answer: str) -> float:
            await asyncio.sleep(0)
            return right(completion, answer)
        """,
    )
    report = check_reward(spec)
    assert report.findings == ()
    assert "worker process" not in report.relations


def test_a_verifier_must_reject_and_give_reasons(tmp_path: Path) -> None:
    spec = planted(
        tmp_path,
        """
        @verifier(version=1, cases=[Case(RIGHT.completion, RIGHT.row, True), Case(WRONG.completion, WRONG.row, False)])
        def mine(completion: str, answer: str) -> Verdict:
            if not completion:
                return Verdict(None)
            return Verdict(bool(right(completion, answer)) or "know" in completion)
        """,
    )
    report = check_verifier(spec)
    assert errors(report) == {"silence", "undecided with a reason"}
    assert [finding.relation for finding in report.of("warning")] == ["silence"]


@pytest.mark.slow
def test_a_case_that_does_not_hold_is_named() -> None:
    report = check_reward("proximity", [Case("72", row={"answer": "72"}, expect=0.5)])
    [finding] = report.of("error")
    assert (finding.relation, finding.message, finding.example) == ("cases", "expected 0.5, but it scored 1", "'72'")
    with pytest.raises(PluginError, match=r"expected 0\.5"):
        report.require()


def test_a_case_that_fails_is_told_by_the_name_of_the_reward_and_its_options() -> None:
    report = check_reward("gsm8k.correctness", [Case("7", row={}), Case("7", row={}, options={"variant": "gist"})])
    messages = [finding.message for finding in report.of("error") if finding.relation == "cases"]
    assert "(reward 'gsm8k.correctness' of grpo-kit, row 0: it needs the column" in messages[0]


def test_options_that_change_what_is_right_leave_no_gold_to_compare_with(tmp_path: Path) -> None:
    (tmp_path / "tidy.toml").write_text(
        'doc = "Form, then the answer."\ncases = [{ completion = "<reasoning>2 + 2</reasoning><answer>4</answer>", '
        'row = { answer = "4" }, expect = 1.0 }]\n[[components]]\nreward = "format"\nweight = 0.2\ngate = true\n'
        '[[components]]\nreward = "proximity"\nweight = 0.8\n'
    )
    assert not errors(check_reward(str(tmp_path / "tidy.toml")))
    report = check_reward(f"{tmp_path}/tidy.toml:format.tags=think/answer")
    assert not errors(report)
    [warning] = report.of("warning")
    assert warning.message.startswith("with these options the best of its cases scores -3.53333, without them 1")


NEAR_ONLY = """
@reward(version=1, range=(0.0, 1.0), cases=[Case("It is 41.", row={"answer": "#### 42"}, expect=0.5)])
def mine(completion: str, answer: str) -> float:
    import re
    numbers = re.findall("[0-9]+", completion)
    return 1 / (1 + abs(int(numbers[-1][:15]) - int(answer.split()[-1]))) if numbers else 0.0
"""


@pytest.mark.slow
def test_a_reward_whose_cases_stop_below_the_top_is_asked_about_hedges_all_the_same(tmp_path: Path) -> None:
    report = check_reward(planted(tmp_path, NEAR_ONLY))
    assert "alternatives" in errors(report)
    assert [(note.relation, note.example) for note in report.of("note")] == [("gold", "'It is 42.'")]


def test_a_text_that_states_the_gold_stands_in_for_a_missing_case(tmp_path: Path) -> None:
    source = """
    @reward(version=1, range=(0.0, 1.0), cases=[Case("Lyon", row={"answer": "Paris"}, expect=0.2)])
    def mine(completion: str, answer: str) -> float:
        return 1.0 if str(answer).casefold() in completion.casefold() else 0.2 if completion.strip() else 0.0
    """
    assert {"alternatives", "every number"} <= errors(check_reward(planted(tmp_path, source)))


def test_what_the_cases_give_no_occasion_for_is_told(tmp_path: Path) -> None:
    source = """
    @reward(version=1, range=(0.0, 1.0), cases=[Case("forty", row={"sum": "x", "mass": 3}, expect=0.5)])
    def mine(completion: str, sum: str) -> float:
        return 0.5 if completion.strip() else 0.0
    """
    report = check_reward(planted(tmp_path, source))
    assert report.ok
    assert "all hold" not in str(report)
    assert [sentence.partition(":")[0] for sentence in report.not_tried] == [
        "what scores more than 0.5",
        "right and wrong answers, other spellings of a number, alternatives and look-alikes",
    ]
    assert "  not tried: what scores more than 0.5: no case reaches 1, the top of its range" in str(report)
    assert report.as_json()["not_tried"] == list(report.not_tried)


def test_a_closure_and_a_reward_of_the_test_itself_are_checked() -> None:
    from grpo import reward

    scale = 1.0

    @reward(version=1, range=(0.0, 1.0), isolation="inline", cases=[Case("a", expect=1.0), Case("", expect=0.0)])
    def local(completion: str) -> float:
        return scale if completion.strip() else 0.0

    assert check_reward(local).ok


def test_a_reward_that_no_process_can_load_is_checked_in_its_own_room() -> None:
    from grpo import reward

    lock = threading.Lock()

    @reward(version=1, range=(0.0, 1.0), isolation="inline", cases=[Case("a", expect=1.0), Case("", expect=0.0)])
    def local(completion: str) -> float:
        with lock:
            return 1.0 if completion.strip() else 0.0

    report = check_reward(local)
    assert [(finding.severity, finding.relation) for finding in report.findings] == [("warning", "worker process")]
    assert "worker thread" in report.relations


@pytest.mark.slow
def test_a_reward_that_always_hangs_costs_its_time_limit_alone(tmp_path: Path) -> None:
    spec = planted(
        tmp_path,
        """
        @reward(version=1, range=(0.0, 1.0), timeout=0.2, isolation="inline", cases=[RIGHT, WRONG])
        def mine(completion: str, answer: str) -> float:
            while True:
                pass
        """,
    )
    assert errors(check_reward(spec)) == {"cases", "no crash"}


def test_without_cases_the_report_says_so() -> None:
    from grpo import reward

    @reward(version=1, isolation="inline")
    def bare(completion: str) -> float:
        return 1.0

    assert [(f.severity, f.relation) for f in check_reward(bare).findings] == [
        ("warning", "cases"),
        ("warning", "calls"),
    ]


def test_a_wrong_option_is_the_users_error() -> None:
    with pytest.raises(OptionError, match="no option 'toleranse'"):
        check_reward("proximity:toleranse=1")


# What published texts pay for without an option, which is a note.
PUBLISHED = {
    "proximity.check_numbers": {"thousands comma", "alternatives"},
    "proximity.match_format_approximately": {"only tags"},
}
# Penalties: silence deserves none, which is their highest score.
PENALTIES = {"overlong", "repetition"}
# What an environment reported of a rollout is not in its text, so no case can state it.
UNSTATED = {"cases"}


@pytest.mark.slow
def test_the_built_in_rewards_and_verifiers_keep_every_relation() -> None:
    host = Host.discover()
    for known in host.registrations("reward"):
        if any(option.required for option in getattr(known.spec, "options", ())):
            continue  # needs something of the user's, such as an endpoint; its own tests check it
        report = check_reward(host.reward(known.spec.name))
        assert errors(report) == set(), str(report)
        assert {note.relation for note in report.of("note")} >= PUBLISHED.get(known.spec.name, set()), str(report)
        allowed = {"silence"} if known.spec.name in PENALTIES else {"only tags"}
        if known.spec.name == "environment":
            allowed = UNSTATED
        assert {finding.relation for finding in report.of("warning")} <= allowed, str(report)
    for known in host.registrations("verifier"):
        relations = {finding.relation for finding in check_verifier(host.verifier(known.spec.name)).findings}
        assert relations == (UNSTATED if known.spec.name == "environment" else set())


LAYOUT = {"CRLF", "final newline", "trailing space", "leading space"}
FORMS = {"thousands comma", "trailing zero", "currency sign"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spec", "wrong", "doubtful"),
    [
        ("gsm8k.correctness:variant=gist", FORMS, set()),
        ("gsm8k.correctness:variant=unsloth_copy", FORMS, set()),
        ("gsm8k.correctness:variant=verl.strict", {"trailing zero", "currency sign", "alternatives"}, set()),
        ("gsm8k.correctness:variant=verl.flexible", {"trailing zero", "thousands comma", "alternatives"}, set()),
        ('countdown:variant=tinyzero,header="Assistant:"', {"final newline", "trailing space"}, set()),
        ('knights_and_knaves:variant=logic_rl,header="Assistant:"', {"every number", "alternatives"}, set()),
        ("gsm8k.integer:variant=gist", set(), set()),
        ("gsm8k.strict_format:variant=gist", LAYOUT, {"only tags"}),
        ("gsm8k.strict_format:variant=unsloth_copy", {"gold"}, set()),
        ("gsm8k.soft_format:variant=gist", {"leading space"}, {"only tags"}),
        ("gsm8k.soft_format:variant=unsloth_copy", {"leading space", "multi-line reasoning"}, {"only tags"}),
        ("gsm8k.xmlcount:variant=gist", {"CRLF", "final newline", "trailing space"}, {"only tags"}),
        ("proximity:table=gemma3_1b", FORMS, {"wrong >= silence"}),
        ("proximity:table=adv_llama3", FORMS, {"wrong >= silence"}),
        ("proximity:table=qwen3_4b", FORMS, {"wrong >= silence"}),
        ("proximity.check_numbers:table=adv_llama3", {"alternatives"}, {"wrong >= silence"}),
        ("proximity.check_numbers:table=qwen3_4b", {"alternatives"}, set()),
        ("proximity.match_format_approximately:table=qwen3_4b", set(), {"only tags"}),
        ("proximity.match_format_exactly:table=qwen3_4b", set(), set()),
        ("format:variant=trl.think_format_reward", {"leading space"}, {"only tags"}),
        ("format:variant=open_r1.format_reward", {"CRLF", "trailing space", "leading space"}, {"only tags"}),
        ("format:variant=open_r1.tag_count_reward", {"CRLF"}, {"only tags"}),
        ("format:variant=open_r1.reasoning_steps_reward", set(), set()),
    ],
)
def test_what_published_variants_pay_for_is_noted(spec: str, wrong: set[str], doubtful: set[str]) -> None:
    report = check_reward(spec)
    assert report.ok, str(report)
    assert not report.of("warning"), str(report)
    notes = [note for note in report.of("note") if note.message.startswith("as published, ")]
    assert {finding.relation for finding in notes} == wrong | doubtful, str(report)


@pytest.mark.slow
def test_a_plugin_says_that_it_scores_as_published_and_still_has_to_work(tmp_path: Path) -> None:
    path = tmp_path / "theirs.py"
    text = """
from grpo import Case, reward

CASES = [Case("<a>4</a>", {"answer": "4"}, 1.0), Case("", {"answer": "4"}, 0.0)]

@reward(range=(0.0, 1.0), as_published=%s, cases=CASES)
def theirs(completion: str, answer: str, *, variant: str = "mine") -> float:
    if "1,200" in completion and variant == "broken":
        raise ValueError("no commas")
    return 1.0 if answer in completion.replace(",", "" if variant == "mine" else ",") else 0.0
"""
    path.write_text(text % "False")
    assert "alternatives" in errors(check_reward(f"{path}:theirs"))
    path.write_text(text % "True")
    report = check_reward(f"{path}:theirs")
    assert report.ok
    assert "alternatives" in {note.relation for note in report.of("note")}
    path.write_text(text % '["variant"]')
    assert "alternatives" in errors(check_reward(f"{path}:theirs"))
    assert check_reward(f"{path}:theirs:variant=theirs").ok
    assert errors(check_reward(f"{path}:theirs:variant=broken")) == {"no crash"}


@pytest.mark.slow
def test_the_copied_proximity_rule_pays_a_right_answer_less_than_silence() -> None:
    comma = next(f for f in check_reward("proximity:table=qwen3_4b").findings if f.relation == "thousands comma")
    assert comma.message == "as published, same answer as the gold, which scores 5, but it scored -4.5"
    assert "<SOLUTION>1,200</SOLUTION>" in comma.example


@pytest.mark.slow
def test_any_plugin_survives_its_check(tmp_path: Path) -> None:
    bodies: list[Any] = ["raise RuntimeError", "return 'text'", "return float('nan')", "import sys; sys.exit(3)"]
    for body in bodies:
        spec = planted(
            tmp_path,
            f"""
            @reward(version=1, range=(0.0, 1.0), cases=[RIGHT])
            def mine(completion: str, answer: str) -> float:
                {body}
            """,
        )
        assert "cases" in errors(check_reward(spec))
