"""What plugins change of a process is put back, and named."""

from __future__ import annotations

import gc
import locale
import os
import resource
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from grpo.core.scoring.process_state import ProcessState

CHANGES = {
    "the working directory": "os.chdir('/')",
    "the umask": "os.umask(0o177)",
    "variables of the launcher": "os.environ['RANK'] = '7'",
    "stdout": "sys.stdout = sys.stderr",
    "stderr": "sys.stderr = None",
    "the recursion limit": "sys.setrecursionlimit(sys.getrecursionlimit() - 7)",
    "the garbage collector": "gc.disable()",
    "the locale": "locale.setlocale(locale.LC_ALL, 'C' if locale.setlocale(locale.LC_ALL) != 'C' else 'C.UTF-8')",
    "warnings that are errors": "warnings.filterwarnings('error', message='of a plugin')",
    "limits of the process": "resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(4)[1]))",
    "handlers of signals": "signal.signal(signal.SIGINT, signal.SIG_IGN)",
    "an alarm": "signal.setitimer(signal.ITIMER_REAL, 1000)",
    "numpy's handling of errors": "np.seterr(all='raise')",
    "whether gradients are recorded": "torch.set_grad_enabled(False)",
    "torch's autocast": "torch.autocast('cpu', dtype=torch.bfloat16).__enter__()",
    "torch's default dtype": "torch.set_default_dtype(torch.float64)",
    "torch's default device": "torch.set_default_device('meta')",
    "torch's threads": "torch.set_num_threads(torch.get_num_threads() + 1)",
    "torch's deterministic algorithms": "torch.use_deterministic_algorithms(True, warn_only=True)",
    "torch's precision of products": "torch.set_float32_matmul_precision('medium')",
    "torch's search for anomalies": "torch.autograd.set_detect_anomaly(True)",
}
NAMES: dict[str, Any] = {
    module.__name__: module for module in (gc, locale, os, resource, signal, sys, threading, warnings, torch)
}


@pytest.fixture(autouse=True)
def core_files() -> Iterator[None]:
    """A limit that can be lowered."""
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    if hard == 0:
        pytest.skip("this process may write no core files")
    resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_CORE, (soft, hard))


@pytest.mark.parametrize("name", CHANGES)
def test_what_a_plugin_changes_is_put_back_and_named(name: str) -> None:
    state = ProcessState()
    assert state.put_back() == []
    exec(CHANGES[name], NAMES | {"np": np})
    assert state.put_back() == [name]
    assert state.put_back() == []


def test_a_block_of_inference_that_was_left_open_is_closed() -> None:
    state = ProcessState()
    block = torch.inference_mode()
    block.__enter__()
    assert state.put_back() == ["whether gradients are recorded"]
    assert not torch.ones(2, requires_grad=True).mul(2).is_inference()
    assert torch.is_grad_enabled()
    assert state.put_back() == []


def test_several_changes_at_once_are_put_back() -> None:
    state = ProcessState()
    for change in CHANGES.values():
        exec(change, NAMES | {"np": np})
    assert {*state.put_back()} == {*CHANGES}
    assert state.put_back() == []


def test_a_working_directory_that_is_gone_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gone").mkdir()
    state = ProcessState()
    os.chdir("gone")
    (tmp_path / "gone").rmdir()
    assert state.put_back() == ["the working directory"]
    assert Path.cwd() == tmp_path


def test_what_belongs_to_a_thread_is_that_threads() -> None:
    with torch.no_grad():
        begun = ProcessState(thread=False)
    assert begun.put_back() == []
    assert torch.is_grad_enabled()


def test_a_process_that_a_plugin_forked_ends_instead_of_going_on(tmp_path: Path) -> None:
    state = ProcessState()
    child = os.fork()
    if child == 0:
        state.put_back()
        (tmp_path / "came back").touch()
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert not (tmp_path / "came back").exists()
