"""A stop that is asked for from outside: by a signal in the main thread, and the same in another one."""

from __future__ import annotations

import signal
import threading
import time

import pytest

from grpo.core.train.stop import StopRequest, ask_all


def test_outside_the_main_thread_a_stop_that_is_asked_for_acts_as_a_signal() -> None:
    heard: list[str] = []
    ready, go_on = threading.Event(), threading.Event()

    def run() -> None:
        request = StopRequest()
        try:
            with request.listening():
                with request.finishing_steps():
                    ready.set()
                    go_on.wait(60)
                    heard.append(f"asked {request.asked}")
                ready.set()
                while True:
                    time.sleep(0.01)
        except KeyboardInterrupt:
            heard.append("interrupted")

    thread = threading.Thread(target=run)
    thread.start()
    ready.wait(60)
    ready.clear()
    ask_all()
    go_on.set()
    ready.wait(60)
    ask_all()
    thread.join(60)
    assert heard == ["asked True", "interrupted"]
    ask_all()  # nobody listens


def test_a_signal_lets_the_step_end_and_a_second_one_stops_at_once(capfd: pytest.CaptureFixture[str]) -> None:
    request, asked = StopRequest(), list[bool]()

    def stopped_twice() -> None:
        with request.listening(), request.finishing_steps():
            signal.raise_signal(signal.SIGTERM)
            asked.append(request.asked)
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(KeyboardInterrupt):
        stopped_twice()
    assert asked == [True]
    assert "stopping after this step" in capfd.readouterr().err


def test_a_signal_before_the_first_step_stops_at_once() -> None:
    with pytest.raises(KeyboardInterrupt), StopRequest().listening():
        signal.raise_signal(signal.SIGTERM)
