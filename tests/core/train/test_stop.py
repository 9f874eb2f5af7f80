"""A stop that is asked for from outside: the same in a thread as by a signal in the main one."""

from __future__ import annotations

import threading
import time

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
