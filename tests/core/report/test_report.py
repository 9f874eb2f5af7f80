"""The file that `grpo report` writes: what is in it, what is not, how large it is, and when it is refused."""

from __future__ import annotations

import base64
import hashlib
import json
import random
import re
import shlex
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from made_run import failed, made_run

from grpo.core.cli.report import report
from grpo.core.record.run_dir import RolloutRow
from grpo.core.report.page import LIST, LIVE, REPORT, page
from grpo.core.report.page.linker import linked_modules
from grpo.core.report.public import public_config
from grpo.core.report.report import compared, write_report
from grpo.core.watch.folder import WatchedFolder
from grpo.plugins.errors import UsageError
from grpo.plugins.host import Host

PAGE = Path(__file__).resolve().parents[3] / "core" / "report" / "page"
DOCUMENTATION = PAGE.parents[2] / "docs" / "report.md"
ROOM = 30_000_000


def blocks_of(file: Path) -> dict[str, bytes]:
    found = re.findall(r'octet-stream" id="([\w-]+)">([^<]*)</script>', file.read_text("utf-8"))
    return {name: zlib.decompress(base64.b64decode(block)) for name, block in found}


def summary_of(file: Path, place: int = 0) -> dict[str, Any]:
    run: dict[str, Any] = json.loads(blocks_of(file)["summary"])["runs"][place]
    return run


def column(file: Path, name: str) -> list[float]:
    summary, data, at = summary_of(file), blocks_of(file)["run0-index"], 0
    for own, kind in summary["columns"]:
        size = summary["held"] * np.dtype(f"<{kind}").itemsize
        if own == name:
            values: list[float] = np.frombuffer(data[at : at + size], f"<{kind}").tolist()
            return values
        at += size
    raise KeyError(name)


def test_the_page_holds_every_rollout_with_its_texts(tmp_path: Path) -> None:
    run = made_run(tmp_path / "run", steps=2)
    done = write_report([run.path], tmp_path / "run.html", limit=ROOM)
    assert (done.held, done.recorded) == (16, 16)
    texts = json.loads(blocks_of(done.path)["run0-texts0"])
    assert [row[2] for row in texts["rollouts"]][:2] == ["She has 3+4=7.\n#### 7", "She has 3+4=7.\n#### 7"]
    assert len(texts["shared"]) == 4, "two prompts and two rows, each once"
    assert column(done.path, "step") == [1] * 8 + [2] * 8
    assert column(done.path, "number") == [*range(8), *range(8)]
    assert column(done.path, "reward")[:4] == pytest.approx([1.0, 1.0, 1 / 3, 0.25])
    assert column(done.path, "verdict")[:4] == [2, 2, 1, 1]


def test_the_same_runs_give_the_same_bytes(tmp_path: Path) -> None:
    runs = [made_run(tmp_path / name).path for name in ("one", "two")]
    files = [write_report(runs, tmp_path / name, limit=ROOM).path.read_bytes() for name in ("a.html", "b.html")]
    assert files[0] == files[1]


def test_nothing_that_a_run_says_is_part_of_the_html(tmp_path: Path) -> None:
    evil = "</script><script>alert(1)</script><img src=x onerror=alert(1)>"
    rewards = {evil: ("failure", None, evil)}

    def change(row: RolloutRow, _: int) -> RolloutRow:
        prompt, columns = json.dumps([{"role": evil, "content": evil}]), json.dumps({evil: evil})
        return replace(row, completion=evil, prompt=prompt, columns=columns, env=evil, outcomes=rewards)

    run = made_run(tmp_path / "<b>run", change=change, env=evil)
    text = write_report([run.path], tmp_path / "run.html", limit=ROOM).path.read_text("utf-8")
    plain = "".join(page("", []))
    rest = re.sub(r'(octet-stream" id="[\w-]+">)[^<]*', r"\1", text)
    assert re.sub(r'<script type="application/octet-stream" id="run[^\n]*\n', "", rest) == plain


def test_the_policy_of_the_page_admits_its_own_script_and_style_and_nothing_else() -> None:
    text = "".join(page("", []))
    [policy] = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    for name, tag in (("script-src", "script"), ("style-src", "style")):
        [source] = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()
        assert f"{name} 'sha256-{digest}';" in policy
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy


def test_every_script_of_the_page_is_in_it_short_and_sets_no_html() -> None:
    modules = {entry: set(linked_modules(PAGE, entry)) for entry in (REPORT, LIVE, LIST)}
    assert set.union(*modules.values()) == {file.name for file in PAGE.glob("*.js")}
    for file in (*PAGE.glob("*.js"), *PAGE.glob("*.css")):
        text = file.read_text("utf-8")
        assert len(text.splitlines()) <= 600
        assert re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function", text) == []
        assert re.findall(r"https?://(?!www\.w3\.org/2000/svg)|@import(?! \{)|XMLHttpRequest", text) == [], file.name
        assert "fetch(" not in text or file.name not in modules[REPORT]


def required_keys(script: str, name: str) -> set[str]:
    """Returns the keys that a type of a script requires."""
    text = (PAGE / script).read_text("utf-8")
    [fields] = re.findall(rf"@typedef \{{\{{((?:(?!@typedef).)*?)\}}\}} {name}\b", text, re.DOTALL)
    return set(re.findall(r"(?:^|[,*])\s*(\w+): ", re.sub(r"\{[^}]*\}", "object", fields)))


def test_the_types_of_the_scripts_name_what_python_sends(tmp_path: Path) -> None:
    run = made_run(tmp_path / "run", change=lambda row, number: failed(row, "broke") if number == 0 else row)
    done = write_report([run.path], tmp_path / "run.html", limit=ROOM)
    summary = summary_of(done.path)
    [line] = WatchedFolder(tmp_path).lines()
    assert required_keys("data.js", "Summary") <= set(summary)
    assert required_keys("data.js", "Alarm") == set(summary["alarms"][0])
    assert required_keys("data.js", "Index") <= {name for name, _ in summary["columns"]}
    assert required_keys("data.js", "Block") == set(json.loads(blocks_of(done.path)["run0-texts0"]))
    assert required_keys("runs.js", "Line") <= set(line)
    assert {"name", "metrics", "starts"} <= required_keys("data.js", "Summary")


def random_texts(row: RolloutRow, number: int) -> RolloutRow:
    words = random.Random(row.step * 1000 + number)
    text = " ".join(f"{words.getrandbits(60):x}" for _ in range(30))
    return failed(replace(row, completion=text), "broke") if number == 11 else replace(row, completion=text)


def test_a_page_that_would_be_too_large_keeps_what_matters_and_says_what_it_left_out(tmp_path: Path) -> None:
    run = made_run(tmp_path / "run", steps=20, groups=16, change=random_texts)
    whole = write_report([run.path], tmp_path / "whole.html", limit=ROOM)
    fixed = sum(map(len, page("", [])))
    limit = fixed + (whole.size - fixed) // 3
    done = write_report([run.path], tmp_path / "run.html", limit=limit)
    assert whole.held == whole.recorded == done.recorded == 20 * 64
    assert done.size <= limit
    assert done.size > 0.8 * limit, "the room is used"
    summary = summary_of(done.path)
    assert (summary["recorded"], summary["held"]) == (1280, done.held)
    assert summary["recordedBySteps"] == [[step, 64] for step in range(1, 21)]
    assert sum(column(done.path, "failed")) == 20
    assert set(column(done.path, "step")) == set(range(1, 21))


@pytest.mark.slow
def test_other_rewards_are_compared_on_all_that_was_recorded(tmp_path: Path) -> None:
    run = made_run(tmp_path / "run", steps=2)
    done = write_report([run.path], tmp_path / "run.html", limit=ROOM, new=["text_match"])
    told = summary_of(done.path)["difference"]
    assert (told["rewards"], told["groups"]) == (["text_match"], 4)
    recorded, now = column(done.path, "reward"), column(done.path, "new_reward")
    assert told["means"] == pytest.approx([sum(recorded) / 16, sum(now) / 16])
    assert now[0] > now[3], "the right answer still earns more"
    assert len(column(done.path, "new_advantage")) == 16


@pytest.mark.slow
@pytest.mark.parametrize(
    ("advantage", "scale"),
    [
        ("group_mean", "group"),
        ("group_mean:scale=none", "none"),
        ({"name": "group_mean", "options": {"scale": "none"}}, "none"),
        ("rloo", "others"),
        ("return_to_go", "others"),
    ],
)
def test_advantages_under_other_rewards_are_made_as_the_run_made_its_own(
    tmp_path: Path, advantage: Any, scale: str
) -> None:
    run = made_run(tmp_path / "run", steps=1, groups=1)
    difference = compared(run, {"loss": {"advantage": advantage}}, Host.discover(), ["text_match"])
    totals = torch.tensor([one.old.total for one in difference.changes], dtype=torch.float64)
    centred = totals - totals.mean()
    wanted = {"group": centred / (totals.std() + 1e-4), "none": centred, "others": centred * 4 / 3}[scale]
    assert [one.old.advantage for one in difference.changes] == pytest.approx(wanted.tolist())


def test_a_run_that_does_not_say_which_advantage_it_had_is_refused_in_words(tmp_path: Path) -> None:
    run = made_run(tmp_path / "run", steps=1, groups=1)
    configs: list[dict[str, Any]] = [{}, {"loss": {}}, {"loss": "dapo"}]
    for config in configs:
        with pytest.raises(UsageError, match="does not say which advantage"):
            compared(run, config, Host.discover(), ["text_match"])


@pytest.mark.slow
def test_the_commands_of_the_page_of_the_documentation_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("demo", "lower-rate"):
        made_run(tmp_path / "runs" / name)
    monkeypatch.chdir(tmp_path)
    lines = re.findall(r"^    grpo report (.+)$", DOCUMENTATION.read_text("utf-8"), re.MULTILINE)
    assert len(lines) == 3
    for line in lines:
        arguments = shlex.split(line)
        done = CliRunner().invoke(report, arguments)
        assert done.exit_code == 0, done.output
        assert (tmp_path / arguments[-1]).is_file()


def test_runs_with_one_name_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    runs = [made_run(tmp_path / folder / "run").path for folder in ("one", "two")]
    done = write_report(runs, tmp_path / "runs.html", limit=ROOM)
    assert [summary_of(done.path, place)["name"] for place in (0, 1)] == ["one/run", "two/run"]


def test_a_run_that_has_not_begun_has_a_page(tmp_path: Path) -> None:
    run = made_run(tmp_path / "run", steps=0)
    done = write_report([run.path], tmp_path / "run.html", limit=ROOM)
    assert (done.held, summary_of(done.path)["columns"]) == (0, [])


def test_a_damaged_step_can_be_left_out_as_the_error_says(tmp_path: Path) -> None:
    run = made_run(tmp_path / "run", steps=2)
    whole = write_report([run.path], tmp_path / "run.html", limit=ROOM).recorded
    file = run.rollouts / "step-000001.parquet"
    file.write_bytes(b"PAR1")
    with pytest.raises(UsageError, match=r"step-000001\.parquet was damaged: .+ Remove it: its step is left out"):
        write_report([run.path], tmp_path / "run.html", limit=ROOM)
    file.unlink()
    assert write_report([run.path], tmp_path / "run.html", limit=ROOM).recorded == whole // 2


def test_numbers_that_json_lacks_are_null(tmp_path: Path) -> None:
    run = made_run(tmp_path / "run", steps=1)
    with run.metrics.open("a") as file:
        file.write('{"step": 2, "reward": NaN, "loss": Infinity}\n')
    assert summary_of(write_report([run.path], tmp_path / "run.html", limit=ROOM).path)["metrics"]["reward"][-1] is None


def test_what_is_no_run_or_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        write_report([tmp_path / "none"], tmp_path / "run.html", limit=ROOM)
    run = made_run(tmp_path / "run")
    with pytest.raises(UsageError, match="--output"):
        write_report([run.path], tmp_path / "none" / "run.html", limit=ROOM)


def test_the_command_says_what_it_wrote_and_what_it_left_out(tmp_path: Path) -> None:
    run = made_run(tmp_path / "run")
    done = CliRunner().invoke(report, [str(run.path), "-o", str(tmp_path / "run.html")])
    assert done.output == f"{tmp_path / 'run.html'}: 24 rollouts, 0.1 MB\n"


def test_the_reason_of_a_verdict_is_in_the_page_and_names_no_folder_in_one_for_others(tmp_path: Path) -> None:
    run = made_run(tmp_path / "run", change=lambda row, _: replace(row, why=f"{tmp_path}/x.py failed"))
    blocks = blocks_of(write_report([run.path], tmp_path / "own.html", limit=30_000_000).path)
    assert f"{tmp_path}/x.py failed".encode() in blocks["run0-texts0"]
    settings = public_config(json.loads(run.config.read_text()), None)
    blocks = blocks_of(write_report([run.path], tmp_path / "others.html", limit=30_000_000, public=settings).path)
    assert b"x.py failed" in blocks["run0-texts0"]
    assert str(tmp_path).encode() not in blocks["run0-texts0"]


def test_a_page_for_others_names_no_folder_of_this_machine(tmp_path: Path) -> None:
    run = made_run(
        tmp_path / "run",
        change=lambda row, number: failed(row, "OSError: /home/ann/keys.txt") if number == 0 else row,
        rewards=["/home/ann/secret-project/mine.py:near"],
        out="/home/ann/runs/first",
    )
    write_report([run.path], tmp_path / "own.html", limit=ROOM)
    settings = public_config(json.loads(run.config.read_text("utf-8")), None)
    write_report([run.path], tmp_path / "public.html", limit=ROOM, public=settings)
    assert "/home/ann/secret-project" in json.dumps(summary_of(tmp_path / "own.html"))
    text = json.dumps(summary_of(tmp_path / "public.html"))
    assert '"mine.py:near"' in text
    assert "/home" not in text
    assert b"/home/ann" in b"".join(blocks_of(tmp_path / "own.html").values())
    public = b"".join(blocks_of(tmp_path / "public.html").values())
    assert b"/home/ann" not in public
    assert b"OSError: keys.txt" in public
