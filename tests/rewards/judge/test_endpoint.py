"""An endpoint, a key or an option that cannot work is refused when the judge is named; the key is never shown."""

import json
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from grpo.core.cli.main import cli
from grpo.core.scoring.outcome import Outcome
from grpo.core.scoring.scorer import Scorer
from grpo.plugins._spec.binding import BoundReward
from grpo.plugins.errors import OptionError, UsageError
from grpo.plugins.host import Host
from grpo.plugins.types import Completion
from tests.rewards.conftest import StandIn

pytestmark = pytest.mark.usefixtures("judge_key")
KEY = "sk-secret-4711"
"""What the fixture judge_key sets."""
ROW = {"question": "What is the capital of France?", "answer": "Paris"}
RUBRIC = """
version = 1
[[components]]
reward = "judge"
options = {{ {options} }}
"""


@pytest.mark.slow
def test_the_key_is_nowhere_to_be_seen(
    stand_in: StandIn,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
    bound: Callable[..., BoundReward],
) -> None:
    echo = {"error": {"message": f"Incorrect API key provided: {KEY}."}}
    stand_in.script = [(401, echo, {}), (403, echo, {}), (200, {"choices": []}, {})]
    reward = bound(stand_in)
    with caplog.at_level(logging.DEBUG), Scorer([reward], retries=0) as scorer:
        outcomes = [scorer.score([Completion(f"Paris {n}", row=ROW)])["judge"][0] for n in range(4)]
        traceback = scorer.first_failure["judge"]
    assert [outcome.kind for outcome in outcomes] == ["failure", "failure", "failure", "score"]
    assert "***" in outcomes[0].reason
    printed = capsys.readouterr()
    record = json.dumps(Host.discover().lock(reward), default=str)
    for text in (traceback, caplog.text, printed.out, printed.err, record, *(str(o) for o in outcomes)):
        assert KEY not in text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"api_key_env": "NO_SUCH_KEY"}, "variable NO_SUCH_KEY is not set"),
        ({"api_key_env": KEY}, "not the name of an environment variable"),
        ({"base_url": "http://127.0.0.1:9/v1"}, "nothing answers at http://127.0.0.1:9/v1"),
        ({"base_url": "localhost:8000"}, "is not a URL"),
        ({"base_url": "http://[::1/v1"}, "is not a URL"),
        ({"base_url": "http://localhost:99999/v1"}, "is not a URL"),
        ({"base_url": f"http://user:{KEY}@localhost/v1"}, "holds a user"),
        ({"base_url": f"http://localhost/v1?key={KEY}"}, "holds a user, a query"),
        ({"model": " "}, "model is blank"),
        ({"rubric": ""}, "rubric is blank"),
        ({"points": 0}, "points=0"),
        ({"points": 101}, "points=101"),
        ({"retries": -1}, "retries=-1"),
        ({"max_concurrency": 0}, "max_concurrency=0"),
        ({"max_tokens": 0}, "max_tokens=0"),
        ({"request_timeout": 0.0}, "request_timeout=0"),
        ({"temperature": -1.0}, "temperature=-1"),
        ({"input_price": float("nan")}, "input_price=nan"),
    ],
)
def test_what_cannot_work_is_refused_when_it_is_named(
    stand_in: StandIn, options: dict[str, Any], words: str, bound: Callable[..., BoundReward]
) -> None:
    with pytest.raises(OptionError) as caught:
        bound(stand_in, **options)
    assert words in str(caught.value)
    assert KEY not in str(caught.value)
    assert caught.value.__cause__ is None or KEY not in str(caught.value.__cause__)


@pytest.mark.slow
def test_a_key_that_the_server_refuses_is_refused_when_it_is_named(
    stand_in: StandIn, bound: Callable[..., BoundReward], outcomes: Callable[..., list[Outcome]]
) -> None:
    stand_in.key = "another"
    with pytest.raises(OptionError, match="refuses the key in JUDGE_KEY"):
        bound(stand_in)
    with pytest.raises(OptionError, match="refuses a request without a key"):
        bound(stand_in, api_key_env="")
    stand_in.key = ""
    assert outcomes(stand_in, ["Paris"], api_key_env="")[0].score == 1.0


def test_without_the_client_the_remedy_is_named(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch, bound: Callable[..., BoundReward]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install 'grpo-kit\[judge\]'"):
        bound(stand_in)


def test_a_run_without_the_endpoint_stops_before_a_model_loads(tmp_path: Path) -> None:
    spec = "judge:base_url=http://127.0.0.1:9/v1,model=m,api_key_env=JUDGE_KEY"
    done = CliRunner().invoke(cli, ["run", "--env", "gsm8k", "--reward", spec, "--out", str(tmp_path / "run")])
    assert isinstance(done.exception, UsageError)
    assert "nothing answers at http://127.0.0.1:9/v1" in str(done.exception)
    assert not (tmp_path / "run").exists()


def test_a_component_of_a_rubric_is_refused_just_so(stand_in: StandIn, tmp_path: Path) -> None:
    file = tmp_path / "graded.toml"
    options = f'base_url = "{stand_in.url}", model = "m", api_key_env = "JUDGE_KEY", retries = 0'
    file.write_text(RUBRIC.format(options=options))
    reward = Host.discover().reward(str(file))
    with Scorer([reward], retries=0) as scorer:
        outcomes = scorer.score([Completion("Paris", row=ROW), Completion("Lyon", row=ROW)])
    assert [outcome.score for outcome in outcomes["graded.judge"]] == [1.0, 0.0]
    assert outcomes["graded.judge"][0].metrics["prompt_tokens"] == 100
    file.write_text(RUBRIC.format(options=options.replace("JUDGE_KEY", "NO_SUCH_KEY")))
    with pytest.raises(UsageError, match="variable NO_SUCH_KEY is not set"):
        Host.discover().reward(str(file))


@pytest.mark.slow
def test_the_check_refuses_the_judge_without_an_endpoint_and_tries_it_with_one(
    stand_in: StandIn, judges: dict[str, Any]
) -> None:
    done = CliRunner().invoke(cli, ["plugins", "check", "judge"])
    assert "needs the option 'base_url'" in str(done.exception)
    spec = f"judge:base_url={stand_in.url},model=m,api_key_env=JUDGE_KEY,retries=0"
    stand_in.brain = knowing
    done = CliRunner().invoke(cli, ["plugins", "check", spec])
    assert (done.exit_code, done.exception) == (0, None), done.output
    assert "relations tried, 2 notes" in done.output  # one says that it scores without a reference too
    stand_in.brain = judges["faithful"]
    done = CliRunner().invoke(cli, ["plugins", "check", spec.replace("model=m", "model=n")])
    assert done.exit_code == 1
    assert "error: alternatives" in done.output


def knowing(messages: list[dict[str, str]]) -> str:
    """A judge that knows the one right answer in its two forms, and takes nothing else for it."""
    answer = re.search(r" answer begins\n((?:\| .*\n)+)\w+ answer ends\n(?!.* answer begins)", messages[1]["content"])
    words = re.sub(r"^\| ", "", answer[1], flags=re.MULTILINE).strip(" .\n").split()
    mark = messages[1]["content"].split("\n")[0].removeprefix("The mark of this message: ")
    points = 10 if " ".join(words) in ("The capital of France is Paris", "Paris") else 0
    return json.dumps({"mark": mark, "reasoning": "", "points": points})
