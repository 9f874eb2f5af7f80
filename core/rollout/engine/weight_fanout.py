"""Sends one stream of weights to several engines at once.

Theory of operation. Making the next tensor may be a step that all processes of a run take together, so the stream is
always read to its end, by the calling thread. Each taker reads in a thread of its own, from a lane that holds one
tensor; a lane whose taker gave up is skipped. So there is never a second copy of the model.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import torch

T = TypeVar("T")
Named = tuple[str, torch.Tensor]
LOOK = 0.05  # seconds between two looks at whether a taker is still there


def hand_out(tensors: Iterable[Named], takers: Sequence[Callable[[Iterator[Named]], T]]) -> list[Future[T]]:
    """Sends a stream to takers side by side; returns each one's result, or raises what the stream raised."""
    source = _Source(tensors)
    if len(takers) < 2:
        taken = [Future[T]() for _ in takers]
        for future, taker in zip(taken, takers, strict=True):
            try:
                future.set_result(taker(source))
            except Exception as error:
                future.set_exception(error)
        for _ in source:
            continue
    else:
        lanes = [_Lane() for _ in takers]
        with ThreadPoolExecutor(len(takers), thread_name_prefix="grpo-sync") as threads:
            taken = [threads.submit(lane.serve, taker) for lane, taker in zip(lanes, takers, strict=True)]
            try:
                for pair in source:
                    for lane in lanes:
                        lane.put(pair)
            except BaseException as error:
                for lane in lanes:
                    lane.put(error)
                raise
            for lane in lanes:
                lane.put(None)
    if source.error is not None:
        raise source.error
    return taken


class _Source:
    def __init__(self, tensors: Iterable[Named]) -> None:
        self._tensors = iter(tensors)
        self.error: Exception | None = None

    def __iter__(self) -> Iterator[Named]:
        return self

    def __next__(self) -> Named:
        try:
            return next(self._tensors)
        except StopIteration:
            raise
        except Exception as error:
            self.error = error
            raise


class _Lane:
    def __init__(self) -> None:
        self._next: queue.Queue[Named | BaseException | None] = queue.Queue(maxsize=1)
        self._left = threading.Event()

    def serve(self, taker: Callable[[Iterator[Named]], T]) -> T:
        def tensors() -> Iterator[Named]:
            while (item := self._next.get()) is not None:
                if isinstance(item, BaseException):
                    raise ConnectionError("the weights could not be read to their end") from item
                yield item

        try:
            return taker(tensors())
        finally:
            self._left.set()

    def put(self, item: Named | BaseException | None) -> None:
        while not self._left.is_set():
            try:
                self._next.put(item, timeout=LOOK)
            except queue.Full:
                continue
            return
