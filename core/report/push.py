"""Puts a run where others find it: a run and the name of a repository in, a commit on the Hugging Face hub out.

    README.md       the card (core/report/card.py)
    run.json        the settings, for `grpo run --config`
    report.html     the page of `grpo report`, with rollouts
    the model       whole, or an adapter where the hub has its base

The folder is written whole before anybody is asked for anything, and goes up as one commit: the repository has all of
it or nothing, and what was there under other names stays.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from grpo.core.policy.export import export_weights
from grpo.core.policy.load import HUB_ID
from grpo.core.policy.weights import Weights, find_run_weights
from grpo.core.record.run_dir import open_run_dir, read_json, read_metrics
from grpo.core.report.card import SETTINGS_FILE, CardFacts, card_of
from grpo.core.report.report import report_of, write_page
from grpo.core.report.unnamed import without_folders
from grpo.plugins.errors import RunError, UsageError

CARD, PAGE = "README.md", "report.html"
PAGE_LIMIT = 30_000_000  # bytes


@dataclass(frozen=True, slots=True)
class Pushed:
    """What would go up, or went.

    Attributes:
        folder: where it was written.
        form: "adapter", "merged" or "model".
        files: name to bytes.
        rollouts: how many the page holds; None without a page.
    """

    folder: Path
    form: str
    files: dict[str, int]
    rollouts: int | None


def refuse_bad_repository(name: str) -> None:
    """Refuses what is no name of a repository.

    Raises:
        UsageError: says how to write it.
    """
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]  # it is in their documentation

    try:
        validate_repo_id(name)
        problem = "" if name.count("/") == 1 else "it has no owner"
    except HFValidationError as error:
        problem = str(error).rstrip(".")
    if problem:
        raise UsageError(f"{name!r} is no name of a repository: {problem}. Write it as OWNER/NAME.")


def write_pushed(run: Path, folder: Path, *, report: bool) -> Pushed:
    """Writes what goes up.

    Args:
        run: a run directory.
        folder: made; it may exist when it is empty.
        report: with the page, in which rollouts and prompts are.

    Raises:
        UsageError: it is no run, has no weights yet, or was damaged.
        RunError: the folder cannot be written.
    """
    weights = find_run_weights(run)
    directory = open_run_dir(run)
    made = report_of([run], limit=PAGE_LIMIT, shared=True)
    form, base = _form(weights)
    export_weights(weights, folder, merge=form == "merged")
    if form == "adapter":
        _name_base(folder, str(base))
    if report:
        write_page(made, folder / PAGE)
    trained = weights.trained
    assert trained is not None
    facts = CardFacts(
        name=run.resolve().name,
        base=base,
        form=form,
        step=trained.step,
        final=trained.final,
        config=read_json(directory.config),
        versions=read_json(directory.versions),
        metrics=read_metrics(directory),
        alarms=made.alarms,
        report=PAGE if report else None,
    )
    (folder / CARD).write_text(card_of(facts), encoding="utf-8")
    settings = {name: value for name, value in without_folders(facts.config).items() if name != "out"}
    (folder / SETTINGS_FILE).write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")
    files = {str(file.relative_to(folder)): file.stat().st_size for file in sorted(folder.rglob("*")) if file.is_file()}
    return Pushed(folder, form, files, made.held if report else None)


def push(folder: Path, name: str, *, private: bool, revision: str | None, message: str) -> str:
    """Sends a folder to the hub as one commit; the repository is made where there is none.

    Args:
        folder: what `write_pushed` wrote.
        name: OWNER/NAME.
        private: a repository that is made is shown to its owner alone.
        revision: a branch, made where there is none; None: the main one.
        message: of the commit.

    Returns:
        The address of the commit.

    Raises:
        RunError: the hub refused it or did not answer; says what to do.
    """
    from huggingface_hub import HfApi

    hub = HfApi()
    with _explained(name):
        hub.create_repo(name, private=private, exist_ok=True)
        if revision is not None:
            hub.create_branch(name, branch=revision, exist_ok=True)
        done = hub.upload_folder(repo_id=name, folder_path=folder, commit_message=message, revision=revision)
    return str(done.commit_url)


@contextmanager
def _explained(name: str) -> Iterator[None]:
    """Says what an error of the hub means.

    Raises:
        RunError: the hub refused something or did not answer.
    """
    import httpx
    from huggingface_hub.errors import HfHubHTTPError, LocalTokenNotFoundError

    try:
        yield
    except LocalTokenNotFoundError:
        raise RunError(f"{name}: there is no token of the hub here. {_LOG_IN}") from None
    except HfHubHTTPError as error:
        status = error.response.status_code if error.response is not None else 0
        said = (error.server_message or str(error).splitlines()[0]).strip().rstrip(".")
        raise RunError(f"{name}: the hub answered {status}: {said}. {_REMEDIES.get(status, _AGAIN)}") from None
    except (httpx.HTTPError, OSError, RuntimeError, ValueError) as error:  # the last two: a file did not arrive
        from huggingface_hub import constants

        what = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise RunError(f"{name}: no answer from {constants.ENDPOINT}: {what}. Check the network. {_AGAIN}") from None


_AGAIN = "What arrived stays hidden until the whole commit has; the same command tries again."
_LOG_IN = "Log in with `hf auth login`, or set HF_TOKEN to a token that may write."
_REMEDIES = {
    401: _LOG_IN,
    403: "The token may not write there: choose an OWNER whose repositories you may write to, or another token.",
    404: "The repository or the branch is not there, or the token may not see it. Check the name and the token.",
    409: "It is there as something else, or was changed meanwhile. Look at it, then try again.",
    413: "It is too large for one commit. Leave the page out with --no-report.",
    429: "Too many calls: wait some minutes, then try again.",
}


def _form(weights: Weights) -> tuple[str, str | None]:
    """Returns in which form the weights go up, and the hub's name of the base model, if the hub has it."""
    folder = Path(weights.base).expanduser()
    base = None if weights.embedded or folder.exists() or not HUB_ID.fullmatch(weights.base) else weights.base
    if weights.adapter is None:
        return "model", base
    return ("merged" if base is None else "adapter"), base


def _name_base(folder: Path, base: str) -> None:
    file = folder / "adapter_config.json"
    settings = json.loads(file.read_text(encoding="utf-8"))
    settings["base_model_name_or_path"] = base
    file.write_text(json.dumps(settings, indent=2) + os.linesep, encoding="utf-8")
