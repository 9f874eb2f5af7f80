"""What the policy read and wrote: prompts by the chat template of its tokenizer, tokens as pieces of text."""

from __future__ import annotations

import base64
import json
import math
import shutil
import zlib
from dataclasses import replace
from pathlib import Path

import pytest
from made_run import made_run
from patience import PATIENCE

from grpo.core.env.prompts import encode_prompts
from grpo.core.policy.embedded import embedded_model_path
from grpo.core.policy.load import load_tokenizer
from grpo.core.record.run_dir import RolloutRow, RunDir
from grpo.core.report.blocks import pack_rollouts
from grpo.core.report.scan import Scan, recorded_steps
from grpo.core.report.template import Renderer
from grpo.core.report.tokens import RunTokenizer
from grpo.plugins.child_process import ChildProcess

FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "1 + 1 = ?"}]
LOOP = "{% for a in range(99999) %}"


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    run = made_run(tmp_path / "run", steps=1)
    run.model.mkdir()
    for name in FILES:
        shutil.copy(embedded_model_path() / name, run.model)
    return run


def test_a_prompt_is_the_text_of_the_token_ids_that_a_run_samples_from(run: RunDir) -> None:
    tokenizer = load_tokenizer(str(run.model))
    [ids] = encode_prompts(tokenizer, [MESSAGES])  # type: ignore[list-item]
    found = RunTokenizer(run)
    assert found.rendered(json.dumps(MESSAGES)) == tokenizer.decode(ids)
    assert found.missing is None


def test_the_pieces_of_a_completion_are_its_text(run: RunDir) -> None:
    tokenizer = load_tokenizer(str(run.model))
    text = "She has 3+4=7 pens.\n#### 7"
    pieces = RunTokenizer(run).pieces(tokenizer(text, add_special_tokens=False)["input_ids"])
    assert pieces is not None
    assert "".join(pieces) == text


def test_a_template_that_refuses_is_told_and_stops_nothing(run: RunDir) -> None:
    (run.model / "chat_template.jinja").write_text("{{ raise_exception('no system message') }}")
    found = RunTokenizer(run)
    assert found.rendered(json.dumps(MESSAGES)) is None
    assert found.missing == "the chat template failed: TemplateError: no system message"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("template", "why"),
    [
        (f"{LOOP}{LOOP}{{% endfor %}}{{% endfor %}}x", "it takes more than 0.3 s"),
        ("{{ 'A' * 3000000000 }}", "MemoryError"),
        ("{{ 'A' * 3000000 }}", "it wrote 3000000 characters"),
    ],
    ids=["time", "memory", "length"],
)
def test_a_template_that_takes_too_much_is_given_up_and_hinders_no_other(
    run: RunDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, template: str, why: str
) -> None:
    started: list[None] = []

    class Counted(Renderer):
        def _started(self) -> ChildProcess:
            started.append(None)
            return super()._started()

    monkeypatch.setattr("grpo.core.report.template.SECONDS", 0.3 if "more than 0.3 s" in why else PATIENCE)
    monkeypatch.setattr("grpo.core.report.tokens._RENDERER", Counted())
    kept = RunTokenizer(run)
    shutil.copytree(run.path, tmp_path / "hostile")
    (tmp_path / "hostile" / "model" / "chat_template.jinja").write_text(template)
    hostile = RunTokenizer(RunDir(tmp_path / "hostile"))
    assert hostile.rendered(json.dumps(MESSAGES)) is None
    assert why in (hostile.missing or "")
    for number in range(3):
        assert hostile.rendered(json.dumps([*MESSAGES, {"role": "user", "content": str(number)}])) is None
    assert len(started) == 1, "it is remembered"
    monkeypatch.setattr("grpo.core.report.template.SECONDS", PATIENCE)
    assert "Be brief." in (kept.rendered(json.dumps(MESSAGES)) or "")
    assert kept.missing is None


def test_an_id_that_no_tokenizer_has_is_half_a_character(run: RunDir) -> None:
    assert RunTokenizer(run).pieces([-1, 2**40]) == ["\ufffd", "\ufffd"]


@pytest.mark.parametrize("prompt", ["[" * 100_000, "null", "3", '[{"role": null}]', "{"])
def test_messages_that_are_none_stop_nothing(run: RunDir, prompt: str) -> None:
    found = RunTokenizer(run)
    assert found.rendered(prompt) is None
    assert (found.missing or "").startswith("the chat template failed: ")


def test_a_log_probability_that_nobody_told_is_none_and_no_certainty(run: RunDir, tmp_path: Path) -> None:
    def change(row: RolloutRow, _: int) -> RolloutRow:
        return replace(row, token_ids=(5, 6, 7), logprobs=(-0.5, math.nan, -math.inf))

    scan = Scan(made_run(tmp_path / "other", steps=1, change=change))
    for step, rows in recorded_steps(scan.run):
        scan.add(step, rows)
    [block] = pack_rollouts(scan, range(len(scan)), RunTokenizer(run), tokens=True).texts
    told = [one[8][1] for one in json.loads(zlib.decompress(base64.b64decode(block)))["rollouts"]]
    assert told == [[-50, None, -9900]] * len(scan)


def test_a_run_that_left_no_tokenizer_says_so(tmp_path: Path) -> None:
    def change(row: RolloutRow, _: int) -> RolloutRow:
        return replace(row, token_ids=(1,), logprobs=(-1.0,))

    found = RunTokenizer(made_run(tmp_path / "run", steps=1, change=change))
    assert found.rendered("[]") is None
    assert found.pieces([1]) is None
    assert found.missing == "the run has left no tokenizer yet"
