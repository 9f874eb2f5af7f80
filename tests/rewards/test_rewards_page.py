"""docs/rewards.md is true: its table of variants is executed, and every reward is named in it."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from grpo.core.scoring.scorer import Scorer
from grpo.plugins._spec.spec_text import parse
from grpo.plugins.host import Host
from grpo.plugins.types import Completion
from grpo.rewards import grpo_rewards
from grpo.rewards.gsm8k.proximity import proximity

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "rewards.md").read_text(encoding="utf-8")
JUDGE = (DOCS / "judge.md").read_text(encoding="utf-8")
CODE = (DOCS / "code.md").read_text(encoding="utf-8")
REWARDS = {spec.name: spec for spec in grpo_rewards()}
TABLE = (DOCS.parent / "benchmarks" / "results" / "gsm8k_variants.md").read_text(encoding="utf-8")
VARIANTS = ("corrected", "gist", "unsloth_copy")


def rows() -> Iterator[list[str]]:
    for line in TABLE.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if f"gsm8k.{cells[0]}" in REWARDS:
            yield cells


def test_the_table_of_variants_has_its_rows() -> None:
    assert len(list(rows())) == 25


@pytest.mark.parametrize("cells", list(rows()), ids=lambda cells: f"{cells[0]} {cells[1]}")
def test_each_row_of_the_variants_scores_as_it_says(cells: list[str]) -> None:
    spec = REWARDS[f"gsm8k.{cells[0]}"]
    completion = cells[1].strip("`").replace("\\n", "\n")
    columns = [cells[2].strip("`")] * len(spec.columns)
    scores = [spec(completion, *columns, variant=variant) for variant in VARIANTS]
    assert scores == pytest.approx([float(cell) for cell in cells[3:6]], abs=1e-9)


def test_the_row_of_proximity_scores_is_right() -> None:
    line = next(line for line in PAGE.splitlines() if line.startswith("| score for a gold"))
    written = [float(cell) for cell in line.strip("|").split("|")[1:]]
    answers = ["72", "72.1", "73", "74", "77", "82", "172", "10,072", "none"]
    assert [proximity(f"<answer>{a}</answer>", "72") for a in answers] == pytest.approx(written, abs=0.001)


def test_every_reward_and_option_is_named() -> None:
    for spec in REWARDS.values():
        assert f"`{spec.name}`" in PAGE
        page = {"judge": JUDGE, "code": CODE}.get(spec.name, PAGE)
        assert all(option.name.rpartition(".")[2] in page for option in spec.options if option.name != "eos")


def test_every_spec_of_the_table_of_published_functions_can_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRPO_PLUGINS", "grpo-kit")
    host = Host.discover()
    table = PAGE.partition("## Published functions")[2].partition("\n## ")[0]
    specs = [spec for line in table.splitlines() for spec in re.findall(r"`([a-z0-9_.]+:[^`]+)`", line)]
    assert len(specs) >= 9
    for spec in specs:
        host.reward(re.sub(r"=[Lcn]\b", "=2", spec).replace("=p", "=-1"))


def test_the_page_of_the_judge_has_each_option_with_its_default() -> None:
    written = dict(re.findall(r"^\| `(\w+)` \|.*\| (\S+) \|$", JUDGE, re.MULTILINE))
    for option in REWARDS["judge"].options:
        if option.name not in ("rubric", "input_price", "output_price"):
            value = written[option.name].strip("`")
            assert value == (
                "required" if option.required else str(option.default).removesuffix(".0").replace("T", "t")
            )


def test_the_table_of_the_page_of_the_judge_can_be_used() -> None:
    [table] = tomllib.loads(re.search(r"```toml\n(.*?)```", JUDGE, re.DOTALL)[1])["rewards"]
    assert parse(table).options.keys() == {"base_url", "model", "api_key_env", "rubric"}
    [text] = re.findall(r"--reward '(judge:[^']*)'", JUDGE)
    assert {name: value.parsed for name, value in parse(text).options.items()} == {
        "base_url": "http://localhost:8000/v1",
        "model": "Qwen/Qwen3-32B",
        "api_key_env": "",
    }


def test_the_rubric_of_the_page_scores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRPO_PLUGINS", "grpo-kit")
    file = tmp_path / "letter.toml"
    file.write_text(re.search(r"```toml\n(.*?)```", PAGE.partition("## E-mails")[2], re.DOTALL)[1])
    row = {"recipient": "Anna", "keywords": ["refund"]}
    with Scorer([Host.discover().reward(str(file))]) as scorer:
        found = scorer.score([Completion("Hi Anna,\nthe refund is sent.", row=row), Completion("The refund.", row=row)])
    assert [outcome.score for outcome in found["letter"]] == [3.0, -1.0]
    assert [outcome.kind for outcome in found["letter.email.keywords"]] == ["score", "abstain"]
    [text] = re.findall(r"--reward (email:\S+)`", PAGE)
    assert Host.discover().reward(text).options == {"length.limit": 120, "signature.partial": False}
