"""A watch that fails ends with one warning, and nothing else ends with it."""

from __future__ import annotations

import pytest

from grpo.core.monitor.watchdog import Watchdog


def broken() -> list[str]:
    raise ValueError("-inf + inf in fsum")


def test_an_error_ends_the_watch_with_one_warning_that_names_it() -> None:
    told: list[tuple[int, str]] = []
    guarded = Watchdog("the watch", lambda step, text: told.append((step, text)))
    assert guarded.look(1, lambda: ["seen"]) == ["seen"]
    assert guarded.look(2, broken) == []
    assert guarded.look(3, lambda: ["seen"]) == []
    assert guarded.look(4, broken) == []
    [(step, text)] = told
    assert step == 2
    assert text.startswith("the watch is off for the rest of this run: it failed in step 2 with ValueError: -inf + inf")


def test_who_wants_the_run_to_end_is_not_held_up() -> None:
    def interrupted() -> list[str]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Watchdog("the watch", lambda step, text: None).look(1, interrupted)
