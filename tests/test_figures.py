"""Figures of README.md and benchmarks/results/speed.md are those of benchmarks/results.toml."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FIGURES = runpy.run_path(str(ROOT / "docs" / "figures.py"))


@pytest.mark.parametrize("page", FIGURES["PAGES"], ids=lambda page: page.name)
def test_a_page_has_the_figures_that_were_measured(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert FIGURES["with_figures"](text, FIGURES["results"]()) == text, "python docs/figures.py"


def test_every_ratio_and_share_of_the_readme_is_a_measured_figure() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    text = re.sub(r"^```.*?^```|^    .*?$", "", text, flags=re.DOTALL | re.MULTILINE)
    assert len(FIGURES["FIGURE"].findall(text)) >= 3
    assert re.findall(r"\d+(?:\.\d+)?(?:%| times)", FIGURES["FIGURE"].sub("", text)) == []


def test_speed_and_memory_of_a_figure_are_of_the_same_runs() -> None:
    results = FIGURES["results"]()
    results["step"]["chat_full"] |= {"seconds": [1.0], "trl_seconds": [4.0], "mib": 1, "trl_mib": 10}
    results["step"]["chat_lora"] |= {"seconds": [2.0, 2.0], "trl_seconds": [6.0, 7.0], "mib": 2, "trl_mib": 10}
    page = "<!-- figure chat --><!-- end -->"
    assert "4.0 times as fast at 10% of the memory (LoRA: 3.2 times, 20%)" in FIGURES["with_figures"](page, results)
    with pytest.raises(KeyError):
        FIGURES["with_figures"]("<!-- figure none --><!-- end -->", results)


def test_every_result_names_the_benchmark_that_measured_it() -> None:
    for kind in FIGURES["results"]().values():
        for result in kind.values():
            assert (ROOT / result["command"].split()[1]).is_file()
