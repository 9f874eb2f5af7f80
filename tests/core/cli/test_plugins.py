"""`grpo plugins` and `grpo plugins show`, run as a user runs them."""

from __future__ import annotations

import importlib.metadata
import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from command import environment_with
from installed_plugin import install
from patience import RUN

PLUGIN = """
from typing import Literal
from grpo import Case, EnvSpec, SandboxSpec, Verdict, hookimpl, reward, verifier

@reward(version=3, range=(0.0, 1.0), timeout=2.5, cases=[
    Case("four", row={"answer": "4"}, expect=1.0), Case("", row={"answer": "4"}, options={"limit": 2})])
def near(completion: str, answer: str, hint: str = "", *, limit: int = 5, mode: Literal["a", "b"] = "a",
         level: float) -> float:
    '''Scores nearness.

    The second paragraph.
    '''
    return 1.0

@verifier(version=1, isolation="inline", batch=True)
def near_verifier(completions: list[str]) -> list[Verdict]:
    return []

@reward(version=1)
async def both(completion: str) -> float:
    return 1.0

@reward(version=1)
def proximity(completion: str) -> float:
    '''A stranger's proximity.'''
    return 0.0

@hookimpl
def grpo_rewards(): return [near, both, proximity]
@hookimpl
def grpo_verifiers(): return [near_verifier]
@hookimpl
def grpo_envs(): return [EnvSpec("both", 1, dict, doc="A world.", rewards=("near",), max_turns=4)]
@hookimpl
def grpo_sandboxes(): return [SandboxSpec("box", 1, dict)]
"""

OTHER = """
from grpo import hookimpl, reward

@reward(version=1)
def proximity(completion: str) -> float:
    '''Another stranger's proximity.'''
    return 0.0

@hookimpl
def grpo_rewards(): return [proximity]

@hookimpl
def grpo_reward(): return []
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    install(folder, "near-dist", PLUGIN)
    install(folder, "other-dist", OTHER)
    install(folder, "torn-dist", "import no_such_module_anywhere")
    return folder


def grpo(site: Path, *arguments: str, pins: str = "near-dist,other-dist,torn-dist") -> subprocess.CompletedProcess[str]:
    environment = environment_with(site, GRPO_PLUGINS=pins)
    command = [sys.executable, "-m", "grpo", "plugins", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=RUN, check=False)


def line_of(output: str, word: str) -> list[str]:
    [line] = [line for line in output.splitlines() if word in line]
    return line.split()


def test_the_list_has_a_line_for_everything(site: Path) -> None:
    done = grpo(site)
    assert done.returncode == 0
    assert done.stdout.split("\n")[0].split() == ["kind", "name", "version", "distribution", "state", "description"]
    assert line_of(done.stdout, "Scores nearness") == ["reward", "near", "3", "near-dist", "ok", "Scores", "nearness."]
    assert line_of(done.stdout, "A world.")[:5] == ["env", "both", "1", "near-dist", "ok"]
    assert line_of(done.stdout, " box ") == ["sandbox", "box", "1", "near-dist", "ok"]
    assert "write near-dist/proximity" in done.stdout
    assert "write other-dist/proximity" in done.stdout
    assert line_of(done.stdout, "grpo_reward'")[:5] == ["-", "main", "-", "other-dist", "misspelt"]
    assert "Did you mean 'grpo_rewards'?" in done.stdout
    assert line_of(done.stdout, "no_such_module_anywhere")[:5] == ["-", "main", "-", "torn-dist", "broken"]
    assert "Traceback" not in done.stdout
    assert done.stderr.strip() == "See the tracebacks with: grpo plugins --verbose"


def test_verbose_adds_the_tracebacks(site: Path) -> None:
    done = grpo(site, "--verbose")
    assert "torn-dist (main):\nTraceback" in done.stdout
    assert done.stderr == ""


def test_json_holds_plugins_and_problems(site: Path) -> None:
    listing = json.loads(grpo(site, "--json").stdout)
    assert listing["plugins"][0] == {
        "kind": "reward",
        "name": "both",
        "version": 1,
        "distribution": "near-dist",
        "distribution_version": "1.5",
        "entry_point": "main",
        "state": "ok",
        "description": "",
    }
    assert {problem["state"] for problem in listing["problems"]} == {"broken", "misspelt", "clash"}
    assert {plugin["state"] for plugin in listing["plugins"]} == {"ok", "clash"}


def test_show_prints_all_of_the_contract(site: Path) -> None:
    done = grpo(site, "show", "near")
    assert done.stdout == (
        "reward near, version 3\n"
        "from near-dist 1.5, entry point 'main'\n"
        "\n"
        "Scores nearness.\n"
        "\n"
        "The second paragraph.\n"
        "\n"
        "Options:\n"
        "  limit  int, default 5\n"
        "  mode   'a' | 'b', default 'a'\n"
        "  level  float, required\n"
        "Columns: answer, hint (optional)\n"
        "Range: 0 to 1\n"
        "Runs: in a process of its own, which is killed when its time is up; one completion a call; timeout 2.5 s\n"
        "Cases: 2\n"
        "  'four', answer='4' -> 1.0\n"
        "  '', answer='4', limit=2 -> abstains\n"
        "Use: grpo run --reward near:level=...\n"
    )


def test_show_tells_batch_async_and_unbounded_ranges(site: Path) -> None:
    assert "Runs: in the caller; a whole batch a call; timeout" in grpo(site, "show", "near_verifier").stdout
    text = grpo(site, "show", "reward:both").stdout
    assert "one completion a call, async" in text
    assert "Range: unbounded" in text


def test_show_of_an_environment_names_its_rewards_and_turns(site: Path) -> None:
    text = grpo(site, "show", "env:both").stdout
    assert "Rewards: near\nVerifier: none\nTurns: 4\nRows: it makes its own episodes\n" in text


def test_a_name_of_two_kinds_must_say_which(site: Path) -> None:
    done = grpo(site, "show", "both")
    assert done.returncode == 2
    assert done.stderr == (
        "grpo: 'both' is a reward and an env. Write grpo plugins show reward:both or grpo plugins show env:both.\n"
    )


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("neer", "no plugin 'neer'. Did you mean 'near'?"),
        ("verifier:neer_verifier", "Did you mean 'near_verifier'?"),
        ("proximity", "Write near-dist/proximity or other-dist/proximity."),
        ("nowhere", "no plugin 'nowhere'. One in a file is ./FILE.py:nowhere. Plugins of "),
        ("torn-dist", "no_such_module_anywhere"),
        ("near@9", "version 9"),
        ("./none.py:f", "no file './none.py'"),
    ],
)
def test_a_wrong_name_is_one_line_and_exit_code_2(site: Path, name: str, words: str) -> None:
    done = grpo(site, "show", name)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


def test_show_of_one_side_of_a_clash_says_so(site: Path) -> None:
    text = grpo(site, "show", "other-dist/proximity").stdout
    assert "Another stranger's proximity." in text
    assert "note: reward 'proximity' is offered by 'near-dist' too; write other-dist/proximity" in text


def test_show_reads_files(site: Path) -> None:
    text = grpo(site, "show", f"{site}/near_dist.py:near").stdout
    assert f"from {site}/near_dist.py\n" in text
    assert f"Use: grpo run --reward {site}/near_dist.py:near:level=...\n" in text


def test_a_plugin_of_a_file_is_known_by_its_source_and_its_options_by_their_texts(site: Path, tmp_path: Path) -> None:
    (tmp_path / "scratch.py").write_text(
        "from grpo import reward\n\n@reward()\ndef near(completion: str, *, level: float = 1.0) -> float:\n"
        '    """Scores.\n\n    Args:\n        completion: what is scored.\n        level: how much it gives,\n'
        '            at most.\n    """\n    return level\n'
    )
    text = grpo(site, "show", f"{tmp_path}/scratch.py:near").stdout
    assert text.startswith("reward near, known by its source\n")
    assert "\nScores.\n\nArgs:\n    completion: what is scored.\n\nOptions:\n" in text
    assert "\n  level  float, default 1.0: how much it gives, at most\n" in text


def test_values_of_an_option_are_shown_as_they_are_written_in_a_spec(site: Path, tmp_path: Path) -> None:
    (tmp_path / "kinds.py").write_text(
        "from enum import Enum\nfrom pathlib import Path\nfrom grpo import reward\n\n"
        "class Pace(Enum):\n    FAST = 'fast'\n    SLOW = 'slow'\n\n@reward()\n"
        "def kinds(completion: str, *, pace: Pace = Pace.FAST, file: Path = Path('a.txt')) -> float:\n    return 1.0\n"
    )
    text = grpo(site, "show", f"{tmp_path}/kinds.py:kinds").stdout
    assert "\n  pace  'fast' | 'slow', default 'fast'\n  file  Path, default 'a.txt'\n" in text


def test_an_unknown_pin_is_exit_code_2(site: Path) -> None:
    done = grpo(site, pins="no-such-dist")
    assert done.returncode == 2
    assert "GRPO_PLUGINS names 'no-such-dist'" in done.stderr


def test_our_own_plugins_have_no_problems(site: Path) -> None:
    listing = json.loads(grpo(site, "--json", pins="grpo-kit").stdout)
    assert listing["problems"] == []
    assert {plugin["distribution_version"] for plugin in listing["plugins"]} == {importlib.metadata.version("grpo-kit")}
    assert all(plugin["description"] for plugin in listing["plugins"])


def test_a_terminal_gets_a_table(site: Path) -> None:
    parent, child = pty.openpty()
    environment = environment_with(site, GRPO_PLUGINS="near-dist", COLUMNS="100", TERM="xterm")
    command = [sys.executable, "-m", "grpo", "plugins"]
    process = subprocess.Popen(command, env=environment, stdout=child, stderr=child, stdin=child)
    os.close(child)
    output = b""
    while True:
        try:
            piece = os.read(parent, 65536)
        except OSError:
            break
        if not piece:
            break
        output += piece
    os.close(parent)
    assert process.wait(timeout=RUN) == 0
    assert b"Scores nearness." in output
    assert b"\x1b[" in output


def test_listing_loads_nothing_heavy() -> None:
    code = (
        "import sys\nsys.argv = ['grpo', 'plugins']\nfrom grpo.core.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "heavy = ['torch', 'transformers', 'trl', 'vllm', 'triton', 'datasets', 'gymnasium', 'numpy', 'pandas']\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
