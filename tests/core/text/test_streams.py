"""Streams that outlive their readers."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from grpo.core.text.streams import DROPPED, LastingStream, LimitedStream, lasting_output, limited_prints


def test_a_stream_that_cannot_be_written_is_told_of_once_and_raises_nothing() -> None:
    reasons: list[str] = []
    with Path("/dev/full").open("w") as full:
        stream = LastingStream(full, reasons.append)
        for _ in range(3):
            print("a line", file=stream, flush=True)
    assert reasons == ["No space left on device"]


def test_a_stream_that_was_closed_is_told_of_once() -> None:
    reasons: list[str] = []
    below = io.StringIO()
    stream = LastingStream(below, reasons.append)
    print("seen", file=stream)
    assert below.getvalue() == "seen\n"
    below.close()
    for _ in range(3):
        print("unseen", file=stream, flush=True)
    assert len(reasons) == 1
    assert not stream.isatty()


def test_a_character_that_the_stream_has_none_for_is_escaped() -> None:
    below = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    stream = LastingStream(below)
    stream.write("\u2501 1/3")
    stream.flush()
    assert below.buffer.getvalue() == b"\\u2501 1/3"


def test_prints_beyond_the_limit_are_dropped_with_a_line_and_cost_nothing() -> None:
    class Below(io.StringIO):
        writes = 0

        def write(self, text: str, /) -> int:
            self.writes += 1
            return super().write(text)

    below = Below()
    stream = LimitedStream(below, most=10)
    print("12345", file=stream)
    print("x" * 100_000, file=stream)
    writes = below.writes
    for _ in range(1000):
        print("x" * 100_000, file=stream)
    assert below.writes == writes
    assert below.getvalue() == f"12345\nxxxx{DROPPED}"


def test_the_streams_of_the_process_are_its_own_again(capsys: pytest.CaptureFixture[str]) -> None:
    before = sys.stdout, sys.stderr
    with lasting_output("It goes on."), limited_prints():
        print("seen")
        sys.stdout = io.StringIO()  # a plugin does this
    assert (sys.stdout, sys.stderr) == before
    assert capsys.readouterr().out == "seen\n"


def command(arguments: Sequence[str], tail: str) -> subprocess.CompletedProcess[str]:
    line = " ".join([sys.executable, "-m", "grpo", *arguments, tail])
    return subprocess.run(
        ["bash", "-c", f"{line}; exit ${{PIPESTATUS[0]}}"], capture_output=True, text=True, check=False
    )


def test_a_command_whose_output_cannot_be_written_says_so() -> None:
    done = command(["plugins"], "> /dev/full")
    assert done.returncode == 1
    assert done.stderr == "grpo: the output cannot be written: No space left on device. Send it elsewhere.\n"


def test_a_command_whose_reader_has_seen_enough_ends_as_others_do() -> None:
    done = command(["plugins"], "| true")
    assert (done.returncode, done.stderr) in ((1, ""), (0, ""))  # 0 where all was written before it went away


def test_closed_streams_are_opened_before_another_file_gets_their_numbers(tmp_path: Path) -> None:
    probe = tmp_path / "probe.py"
    probe.write_text(
        "import os, sys\n"
        "from grpo.core.text.streams import open_standard_streams\n"
        "open_standard_streams()\n"
        "print('nowhere'); print('nowhere', file=sys.stderr); sys.stdin.read()\n"
        "number = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY)\n"
        "os.write(number, str(number).encode())\n"
    )
    target = tmp_path / "number"
    done = subprocess.run(["bash", "-c", f"{sys.executable} {probe} {target} <&- >&- 2>&-"], check=False)
    assert done.returncode == 0
    assert int(target.read_text()) > 2
