"""Restores global process state (random generators, loggers, warning filters) after a run in Python ends."""

from __future__ import annotations

import gc
import importlib
import logging
import os
import random
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from grpo.core.processes.memory import BEFORE_TORCH, give_back_freed_memory
from grpo.core.record.versions import TRL_ON_VLLM
from grpo.core.text.quiet import silence_loggers
from grpo.plugins.errors import UsageError

ENGINE = ("grpo.core.run.recorder", "grpo.core.train.trainer", "grpo.core.rollout.open", "datasets", "pyarrow")


_going = threading.Lock()  # of the run that goes on in this process


@contextmanager
def unchanged_process() -> Iterator[None]:
    """Puts the process's global state back and frees the memory of the run. Raises UsageError while one goes on."""
    if not _going.acquire(blocking=False):
        raise UsageError(
            "a run still goes on in this process, in another thread or around this call, and two would change each "
            "other's random numbers. Wait until it has ended, or start this one in another process."
        )
    with ExitStack() as back:
        back.callback(_going.release)
        _load_engine()
        back.callback(_put_back_variables, dict(os.environ))
        back.enter_context(warnings.catch_warnings())
        for logger in [logging.root, *logging.root.manager.loggerDict.values()]:
            if isinstance(logger, logging.Logger):  # else the name of a package whose modules have loggers
                state = (logger.level, logger.propagate, logger.disabled, list(logger.handlers))
                back.callback(_put_back_logger, logger, *state)
        for put_back in _libraries():
            back.callback(put_back)
        silence_loggers()
        back.callback(give_back_freed_memory)
        back.callback(gc.collect)  # the trainer and its model refer to each other
        yield


def _load_engine() -> None:
    added = {name: value for name, value in BEFORE_TORCH.items() if name not in os.environ}  # as on the command line
    os.environ.update(added)
    quiet = []
    for message in ("IProgress not found", TRL_ON_VLLM):  # the first in a kernel without widgets; no run has bars
        warnings.filterwarnings("ignore", message)
        quiet.append(warnings.filters[0])
    for module in ENGINE:
        importlib.import_module(module)
    for entry in quiet:
        warnings.filters.remove(entry)  # type: ignore[attr-defined]  # a list, whatever its stub says
    for name in added:
        del os.environ[name]


def _libraries() -> Iterator[Callable[[], object]]:
    import datasets
    import numpy
    import torch
    from huggingface_hub.utils.tqdm import are_progress_bars_disabled
    from transformers.utils import logging as transformers

    yield partial(random.setstate, random.getstate())
    yield partial(numpy.random.set_state, numpy.random.get_state())
    yield partial(torch.set_rng_state, torch.get_rng_state())
    yield partial(torch.set_num_threads, torch.get_num_threads())
    yield partial(torch.backends.cuda.enable_cudnn_sdp, torch.backends.cuda.cudnn_sdp_enabled())
    if torch.cuda.is_available():
        if torch.cuda.is_initialized():
            yield partial(torch.cuda.set_rng_state_all, torch.cuda.get_rng_state_all())
        yield torch.cuda.empty_cache
    if not datasets.are_progress_bars_disabled():
        yield datasets.enable_progress_bars
    if transformers.is_progress_bar_enabled():
        yield partial(_put_back_bars, are_progress_bars_disabled())
    yield partial(transformers.set_verbosity, transformers.get_verbosity())


def _put_back_bars(hidden_for_downloads: bool) -> None:
    """Shows the bars of transformers again, which switches those of downloads with its own."""
    from huggingface_hub.utils.tqdm import disable_progress_bars
    from transformers.utils import logging as transformers

    with warnings.catch_warnings(action="ignore"):  # that an environment variable goes on hiding them
        transformers.enable_progress_bar()
        if hidden_for_downloads:
            disable_progress_bars()


def _put_back_variables(variables: dict[str, str]) -> None:
    for name in os.environ.keys() - variables.keys():
        del os.environ[name]
    os.environ.update(variables)


def _put_back_logger(logger: logging.Logger, level: int, propagate: bool, disabled: bool, handlers: list[Any]) -> None:
    logger.setLevel(level)
    logger.propagate, logger.disabled = propagate, disabled
    logger.handlers[:] = handlers
