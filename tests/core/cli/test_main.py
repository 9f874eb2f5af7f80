"""The command line as a whole: what it lists, what it loads, and its exit codes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest
from command import grpo

from grpo.core.cli.main import COMMANDS, cli
from grpo.plugins.errors import PluginError, RunError, UsageError


def test_help_lists_every_command_and_each_of_them_has_help() -> None:
    code, listed, _ = grpo("--help")
    assert code == 0
    context = click.Context(cli)
    for name in COMMANDS:
        assert re.search(rf"^  {name} ", listed, re.MULTILINE)
        command = cli.get_command(context, name)
        assert command is not None
        assert command.name == name
        assert command.help


def test_a_wrong_command_is_named_with_the_nearest_one() -> None:
    message = "grpo: no command 'rnu'. Did you mean 'run'? List the commands with: grpo --help\n"
    assert grpo("rnu", "--env", "gsm8k") == (2, "", message)
    for written, meant in (("trian", "grpo run"), ("resume", "grpo run --resume")):
        done = grpo(written)
        assert (done.returncode, f"Did you mean '{meant}'?" in done.stderr) == (2, True)


def test_a_wrong_flag_is_exit_code_2() -> None:
    done = grpo("run", "--stpes", "3")
    assert (done.returncode, "--steps" in done.stderr) == (2, True)


def test_a_number_of_processes_that_is_none_is_exit_code_2() -> None:
    environment = {**os.environ, "WORLD_SIZE": "x"}
    command = [sys.executable, "-m", "grpo", "plugins"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert (done.returncode, "WORLD_SIZE='x' is no number" in done.stderr) == (2, True)
    assert "Traceback" not in done.stderr


def test_what_an_interrupt_breaks_is_reported_as_the_interrupt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def half_an_import() -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:  # as some libraries do while they are imported
            raise AttributeError("module 'numpy' has no attribute 'ndarray'") from None

    monkeypatch.setitem(cli.commands, "runs", click.Command("runs", callback=half_an_import))
    monkeypatch.setattr(type(cli), "get_command", lambda self, context, name: self.commands.get(name))
    before = signal.getsignal(signal.SIGINT)
    assert grpo("runs") == (130, "", "grpo: interrupted\n")
    assert signal.getsignal(signal.SIGINT) is before


def test_an_interrupt_while_the_command_line_is_imported_is_one_line() -> None:
    code = (
        "import signal, sys\nfrom grpo.core.cli.entry import main\n"
        "class Interrupts:\n"
        "    def find_spec(self, name, *_):\n"
        "        signal.raise_signal(signal.SIGINT) if name == 'click' else None\n"
        "sys.meta_path.insert(0, Interrupts())\nmain()"
    )
    done = subprocess.run([sys.executable, "-c", code, "plugins"], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "grpo: interrupted\n")


@pytest.mark.parametrize(
    ("error", "code"),
    [(UsageError("u"), 2), (RunError("r"), 1), (PluginError("p"), 1), (KeyboardInterrupt(), 130), (click.Abort(), 130)],
)
def test_every_deliberate_error_has_its_exit_code(
    error: BaseException, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    @click.command("plugins")
    def failing() -> None:
        raise error

    monkeypatch.setattr("grpo.core.cli.plugins.plugins", failing)
    done = grpo("plugins")
    assert done.returncode == code
    assert done.stderr.strip() == (f"grpo: {error}" if code < 100 else "grpo: interrupted")


def test_what_an_error_quotes_is_no_command_to_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command("plugins")
    def failing() -> None:
        raise UsageError("unknown setting '\x1b]0;title\x07\x1b[31mred\u202e'")

    monkeypatch.setattr("grpo.core.cli.plugins.plugins", failing)
    assert grpo("plugins") == (2, "", "grpo: unknown setting 'red'\n")


@pytest.mark.slow
def test_help_and_plugins_load_no_library_of_the_engine(tmp_path: Path) -> None:
    heavy = {"torch", "transformers", "trl", "vllm", "triton", "datasets", "peft", "gymnasium", "matplotlib"}
    code = (
        "import sys\nfrom grpo.core.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit as stop:\n    assert not stop.code\n"
        f"print('LOADED', sorted({heavy!r} & set(sys.modules)))"
    )
    for arguments in (["--help"], ["--version"], ["run", "--help"], ["plugins"]):
        done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[-1] == "LOADED []", arguments


def test_a_reader_that_went_away_gets_no_traceback() -> None:
    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m grpo plugins show env:gsm8k | true"], capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == ("", "")
