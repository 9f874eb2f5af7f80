"""A file with a plugin in which a test plants what a check is to find."""

from __future__ import annotations

import textwrap
from pathlib import Path

from grpo.core.check.report import Report

PREAMBLE = """
import asyncio, os, random, signal, threading
from grpo import Case, Completion, Verdict, reward, verifier
RIGHT = Case("The answer is 72", row={"answer": "72"}, expect=1.0)
WRONG = Case("The answer is 7", row={"answer": "72"}, expect=0.0)

def right(completion, answer):
    import re
    stated = re.findall(r"[0-9][0-9,]*(?:[.][0-9]+)?", completion.rpartition(" is ")[2])
    return float(len(stated) == 1 and float(stated[0].replace(",", "")) == float(answer or "nan"))
"""


def planted(tmp_path: Path, source: str) -> str:
    """Writes a file with a plugin named `mine` and returns its SPEC."""
    path = tmp_path / "planted.py"
    path.write_text(PREAMBLE + textwrap.dedent(source), encoding="utf-8")
    return f"{path}:mine"


def errors(report: Report) -> set[str]:
    return {finding.relation for finding in report.of("error")}
