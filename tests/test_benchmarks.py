"""Benchmarks whose tables stand in the docs run at their smallest, and planted faults fit the files they change."""

from __future__ import annotations

import ast
import json
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"
SMALLEST = ("--rounds", "1", "--steps", "3", "--prompts", "2", "--group-size", "2", "--tokens", "4", "--syncs", "1")
NUMBER = re.compile(r"[\d.,]+")


def run(name: str, *arguments: str) -> str:
    command = [sys.executable, str(BENCHMARKS / name), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def rows(printed: str) -> list[list[str]]:
    """The cells of each row of the tables, heads and rules left out."""
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in printed.splitlines() if line[:1] == "|"]
    return [cells for cells in lines[2:] if not cells[0].startswith("-")]


def gpu_results(folder: Path) -> dict[str, dict[str, Any]]:
    return {file.stem: json.loads(file.read_text()) for file in folder.glob("*.json")}


@pytest.mark.slow
def test_parts_for_a_gpu_run_small_on_a_cpu_and_write_their_figures(tmp_path: Path) -> None:
    run("gpu.py", "machine", "sanitizer", "delta", "group", "--tiny", "--out", str(tmp_path))
    results = gpu_results(tmp_path)
    done = {name for name, result in results.items() if result["state"] == "done"}
    assert done >= {"machine", "delta", "group"}
    assert results["delta"]["hashed, GB/s"] > 0
    assert results["sanitizer"]["state"] in ("done", "not here")


@pytest.mark.slow
def test_a_part_for_a_gpu_that_does_not_end_is_killed_and_the_next_one_runs(tmp_path: Path) -> None:
    short = "import gpu, gpu_parts; gpu.PARTS['machine'] = gpu_parts.Part(gpu_parts.machine, 0.01); gpu.main()"
    command = [sys.executable, "-c", short, "machine", "sanitizer", "--tiny", "--out", str(tmp_path)]
    done = subprocess.run(command, cwd=BENCHMARKS, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    results = gpu_results(tmp_path)
    assert results["machine"]["state"] == "timed out"
    assert results["sanitizer"]["state"] in ("done", "not here")


@pytest.mark.nightly
def test_every_part_for_a_gpu_runs_small_on_a_cpu(tmp_path: Path) -> None:
    command = [sys.executable, str(BENCHMARKS / "gpu.py"), "--tiny", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3000, check=False)
    bad = {
        name: result for name, result in gpu_results(tmp_path).items() if result["state"] not in ("done", "not here")
    }
    assert bad == {}, done.stdout


@pytest.mark.slow
def test_a_watched_run_is_measured_beside_its_whole_page() -> None:
    found = rows(run("watch.py", "--rollouts", "400", "--per-step", "200"))
    assert [what for what, _ in found] == [
        "first sight",
        "all of it",
        "one more step",
        "a block of texts",
        "the whole page",
    ]
    assert all(float(seconds) >= 0 for _, seconds in found)


@pytest.mark.nightly
def test_the_first_step_is_measured_beside_that_of_a_plain_script() -> None:
    *_, ours, theirs, ratios = run("first_step.py", "--rounds", "1").splitlines()
    assert [line.split("  ")[0] for line in (ours, theirs, ratios)] == ["grpo run", "plain TRL", "grpo run / plain TRL"]
    assert all(float(figure) > 0 for line in (ours, theirs, ratios) for figure in line.split()[-2:])


@pytest.mark.nightly
def test_a_step_of_two_processes_that_share_the_policy_is_measured_beside_plain_trl() -> None:
    printed = run("scale.py", "--only", "steps", "--sharding", "FSDP 2", *SMALLEST)
    ((processes, sharding, *figures),) = rows(printed)
    assert (processes, sharding) == ("2", "FSDP 2")
    assert len(figures) == 5
    assert all(NUMBER.match(figure) for figure in figures), printed
    assert "Not measured" not in printed


@pytest.mark.nightly
@pytest.mark.vllm
def test_each_way_of_a_sync_is_measured_on_a_rollout_server() -> None:
    printed = run("scale.py", "--only", "syncs", "--sharding", "whole", *SMALLEST)
    sizes = {sent: float(share.rstrip("%")) for sent, _, _, share, *_ in rows(printed)}
    assert "Not measured" not in printed
    assert len(sizes) == 4
    assert sizes["everything"] == 100.0
    assert sizes["the adapter"] < 50.0


@pytest.mark.nightly
@pytest.mark.ray
def test_rewards_are_measured_on_one_node_and_on_two() -> None:
    printed = run("ray_scoring.py", "--rows", "64", "--rewards", "code", "nothing")
    found = rows(printed)
    assert [name for name, *_ in found] == ["`code`", "`nothing`"]
    assert all(NUMBER.match(rate) for _, *rates, _ in found for rate in rates), printed


def test_every_planted_fault_fits_the_file_that_it_changes() -> None:
    faults = runpy.run_path(str(BENCHMARKS / "planted_faults.py"))["read_faults"]()
    assert len(faults) >= 48
    assert {fault.name: problem for fault in faults if (problem := fault.problem(BENCHMARKS.parent))} == {}


def test_a_planted_fault_leaves_a_file_that_python_reads_and_is_taken_back(tmp_path: Path) -> None:
    for fault in runpy.run_path(str(BENCHMARKS / "planted_faults.py"))["read_faults"]():
        text = (BENCHMARKS.parent / fault.file).read_text(encoding="utf-8")
        copy = tmp_path / fault.file
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(text, encoding="utf-8")
        with fault.planted(tmp_path):
            changed = copy.read_text(encoding="utf-8")
            ast.parse(changed, fault.file)
        assert changed != text
        assert copy.read_text(encoding="utf-8") == text


@pytest.mark.slow
def test_a_planted_fault_is_caught_by_its_tests_and_missed_where_none_of_them_runs() -> None:
    only = ["--only", "numerals-of-any-base-are-alike"]
    caught = run("planted_faults.py", *only)
    assert re.search(r"^caught .* tests/rewards/math/test_notations\.py::", caught, re.MULTILINE)
    command = [sys.executable, str(BENCHMARKS / "planted_faults.py"), *only, "--lane", "long"]
    missed = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert missed.returncode == 1
    assert "1 faults: 0 caught, 1 missed, 0 stale" in missed.stdout


@pytest.mark.nightly
def test_growth_is_measured_by_rollouts() -> None:
    printed = run("growth.py", "--small", "--only", "rollouts")
    (few, more) = (line.split("|")[2:-1] for line in printed.splitlines() if line.startswith("| rollouts"))
    assert (few[0].strip(), more[0].strip()) == ("8", "64")
    assert all(float(figure.replace(",", "")) > 0 for figure in more)


@pytest.mark.nightly
def test_a_step_is_measured_beside_other_programs_with_each_constant_and_the_rule() -> None:
    printed = run("busy.py", "--load", "1 loop", "--rounds", "1", "--steps", "4", "--prompts", "1")
    assert len(printed.splitlines()[-1].removeprefix("1 loop").split()) == 8
    assert all(float(figure) >= 0 for figure in printed.splitlines()[-1].removeprefix("1 loop").split())
