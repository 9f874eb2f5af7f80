"""The pages for those who work on the project are true: what they name exists, in the order in which it stands."""

from __future__ import annotations

import re
import runpy
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
ARCHITECTURE = ROOT / "docs" / "architecture.md"
PAGES = [ARCHITECTURE, ROOT / "CONTRIBUTING.md", ROOT / "AGENTS.md"]
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


def table(heading: str) -> list[list[str]]:
    """Returns the cells of the first table below a heading of docs/architecture.md, without its head."""
    section = ARCHITECTURE.read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_path_that_the_page_names_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    tops = [path.name for path in ROOT.iterdir() if path.is_dir()]
    codes = re.findall(r"`([^`\n]+)`", text)
    paths = [code for code in codes if code.partition("/")[0] in tops and re.fullmatch(r"[\w./-]+/[\w./-]*", code)]
    assert len(paths) >= 10
    assert [path for path in paths if not (ROOT / path).exists()] == []
    assert [path for path in paths if (ROOT / path).is_dir() is not path.endswith("/") and path != ".ci/run"] == []
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in link]
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_make_target_that_the_page_names_exists(page: Path) -> None:
    named = re.findall(r"(?:`|^    )make ([a-z-]+)", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert named
    assert set(named) <= TARGETS


def test_the_folders_of_the_engine_stand_in_the_order_of_imports() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (order,) = [contract for contract in contracts if contract.get("containers") == ["grpo.core"]]
    placed = [name.strip("( )") for layer in order["layers"] for name in re.split("[|:]", layer)]
    shown = [row[0] for row in table("The folders of core, from top to bottom")]
    assert shown == [f"`core/{name}/`" if (ROOT / "core" / name).is_dir() else f"`core/{name}.py`" for name in placed]


def test_the_words_stand_in_order_and_once() -> None:
    words = [row[0] for row in table("Words")]
    assert words == sorted(set(words))


def test_the_picture_is_what_its_script_draws_and_says_what_it_shows() -> None:
    drawn = runpy.run_path(str(ROOT / "docs" / "draw_architecture.py"))["picture"]()
    assert (ROOT / "docs" / "architecture.svg").read_text(encoding="utf-8") == drawn
    (summary,) = re.findall("<desc>(.*)</desc>", drawn)
    assert f"![{summary}](architecture.svg)" in ARCHITECTURE.read_text(encoding="utf-8")


def test_the_workflow_runs_what_anybody_can_run_and_every_form_can_be_read() -> None:
    files = list((ROOT / ".github").rglob("*.yml"))
    read = {file.name: yaml.safe_load(file.read_text(encoding="utf-8")) for file in files}
    job = read["ci.yml"]["jobs"]["part"]
    matrix = job["strategy"]["matrix"]
    assert ".ci/run ${{ matrix.part }}" in [step.get("run") for step in job["steps"]]
    assert ".ci/run nightly" in [step.get("run") for step in read["nightly.yml"]["jobs"]["nightly"]["steps"]]
    parts = {"nightly", *matrix["part"], *(other["part"] for other in matrix["include"])}
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert parts == {*re.findall(r"^#   \.ci/run (\w+) ", script, re.MULTILINE)}
    for name in ("bug.yml", "plugin.yml"):
        assert {"name", "description", "body"} <= read[name].keys()
        identities = [field["id"] for field in read[name]["body"]]
        assert len(identities) == len(set(identities))


def test_the_pages_of_measurements_and_the_links_to_them_lead_somewhere() -> None:
    pages = sorted((ROOT / "benchmarks" / "results").glob("*.md"))
    assert len(pages) >= 10
    lost = []
    for page in [*pages, *(ROOT / "docs").glob("*.md")]:
        for link in re.findall(r"\]\(((?:\.\./|[a-z]\w*\.md)[^)\s]*)\)", page.read_text(encoding="utf-8")):
            target, _, anchor = link.partition("#")
            file = (page.parent / target).resolve()
            text = file.read_text(encoding="utf-8") if file.suffix == ".md" and file.is_file() else ""
            headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
            anchors = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
            if not file.exists() or (anchor and anchor not in anchors):
                lost.append(f"{page.name}: {link}")
    assert lost == []
