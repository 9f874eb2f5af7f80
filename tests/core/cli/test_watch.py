"""`grpo watch`: the link that it prints leads to the run, and Ctrl-C ends it."""

from __future__ import annotations

import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from click.testing import CliRunner
from made_run import made_run
from patience import RUN

from grpo.core.cli.watch import watch
from grpo.plugins.errors import UsageError


@pytest.mark.slow
def test_the_link_leads_to_the_run_until_somebody_interrupts(tmp_path: Path) -> None:
    run = made_run(tmp_path / "my pens & more", steps=1)
    command = [sys.executable, "-m", "grpo", "watch", str(run.path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stderr is not None
        link = server.stdout.readline().strip()
        with urllib.request.urlopen(link, timeout=RUN) as answer:
            assert b"<title>Run report</title>" in answer.read()
        server.send_signal(signal.SIGINT)
        assert server.wait(timeout=RUN) == 0
        said = server.stderr.read().strip()
    assert link.endswith("/report?run=my%20pens%20%26%20more")
    assert said == "Open this link on this machine; Ctrl-C ends."


def test_a_folder_that_is_not_there_is_refused_at_once(tmp_path: Path) -> None:
    done = CliRunner().invoke(watch, [str(tmp_path / "none")])
    assert isinstance(done.exception, UsageError)
    assert "no folder" in str(done.exception)
