"""Times of day and dates: the same in every spelling, others never, and what is neither."""

import pytest

from grpo.rewards.math.dates import is_date, last_date, same_date


@pytest.mark.parametrize(
    ("gold", "text", "same"),
    [
        ("3:30 PM", "15:30", True),
        ("3:30 PM", r"\text{3:30 p.m.}", True),
        ("3:30 PM", "3:30", True),
        ("12:00 PM", "noon", True),
        ("12:30 AM", "00:30", True),
        ("5 PM", "17:00", True),
        ("3:30 PM", "3:30 AM", False),
        ("12 AM", "noon", False),
        ("Jan. 3", "3rd of January", True),
        ("March 15, 2024", "15 March 2024", True),
        ("March 15", "March 16", False),
        ("3:30", "15:30", None),
        ("3:4", "3/4", None),
        ("7:75 PM", "8:15 PM", None),
        ("3:30 PM", "half past three", None),
        ("March", "March", None),
        ("3:30 PM", "3:30 PM" + " " * 100, None),
    ],
)
def test_moments_are_compared_by_what_they_mean(gold: str, text: str, same: bool | None) -> None:
    assert same_date(gold, text) is same


def test_the_last_moment_of_a_sentence_counts() -> None:
    assert last_date("It left at 3:30 PM on March 14 and came at 5:10 p.m. with 12 boxes.") == "5:10 p.m."
    assert last_date("It left at 15:30 with 12 boxes.") == ""
    assert is_date("15:30")
    assert not is_date("15")
