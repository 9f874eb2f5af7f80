"""The reward keeps every relation that an honest score keeps."""

from __future__ import annotations

from grpo_reward_stated_number import stated_number

from grpo import Host, check_reward


def test_the_score_can_be_trusted() -> None:
    report = check_reward(stated_number)
    assert report.ok, str(report)


def test_a_right_answer_pays_in_every_layout_that_gsm8k_asks_for() -> None:
    working = "48 / 2 = <<48/2=24>>24 clips in May.\n48 + 24 = <<48+24=72>>72 clips."
    for completion in (
        f"{working}\n#### 72",
        f"<reasoning>\n{working}\n</reasoning>\n<answer>\n72\n</answer>\n",
        f"<start_working_out>{working}<end_working_out><SOLUTION>72</SOLUTION>",
        f"<think>\n{working}\n</think>\n72",
    ):
        assert stated_number(completion, "72") == stated_number(completion, f"{working}\n#### 72") == 1.0


def test_a_tolerance_lets_near_answers_pass() -> None:
    assert stated_number("The answer is 71.", "72", tolerance=1.0) == 1.0
    assert stated_number("The answer is 70.", "72", tolerance=1.0) == 0.0


def test_grpo_finds_it() -> None:
    assert Host.discover().reward("grpo-reward-stated-number/stated_number").spec is stated_number
