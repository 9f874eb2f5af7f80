"""Publishes a run on the Hugging Face hub, with its model, model card and report.

    README.md           the card
    grpo_config.json    the settings, as `grpo run --config` reads them elsewhere
    report.html         the page of `grpo report`, with rollouts in it
    the model           a folder of transformers, or of PEFT where the base model is on the hub

The folder is whole before the hub is asked for anything, and arrives as one commit or not at all. After an
interruption, large files that had arrived are not sent again.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from grpo.core.policy.export import export_weights, refuse_folder
from grpo.core.policy.load import HUB_ID
from grpo.core.policy.weights import Weights, find_run_weights
from grpo.core.record.run_dir import RunDir, open_run_dir, read_json, whole_folder
from grpo.core.report.card import CONFIG_FILE, REPORT_FILE, Contents, card_of
from grpo.core.report.public import public_config
from grpo.core.report.report import write_report
from grpo.core.text.printable import one_line
from grpo.plugins.errors import GrpoError, RunError, UsageError

CARD_FILE = "README.md"
LARGEST_REPORT = 30_000_000  # bytes
# Settings of transformers and PEFT that name where a folder stood.
NAMING = ("_name_or_path", "name_or_path", "tokenizer_file", "base_model_name_or_path")
UNKNOWN_BASE = "./base-model"  # no model at all would be the embedded one
LOG_IN = "Log in with: hf auth login, or set HF_TOKEN to a token that may write."
WORDS = {
    401: f"the hub does not accept the token. {LOG_IN}",
    402: "the account cannot hold it. Free some room there, or push without --private.",
    403: f"the token may not write there. Name a repository of yours. {LOG_IN}",
    404: f"it does not exist, or the token may not see it. Check the name. {LOG_IN}",
    409: "somebody else is changing it. Run the same command again.",
    412: "somebody else has changed it meanwhile. Look at the change, then push again.",
    413: "a file is too large for the hub. Leave out the report with --no-report.",
    429: "the hub has had too many requests. Wait some minutes, then run the same command again.",
}


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder that is ready for the hub."""

    path: Path  # where it is
    contents: Contents  # what it holds beside the card
    rollouts: int  # how many are in the report; 0 without one
    sizes: dict[str, int]  # the files, by path inside, to their bytes


@dataclass(frozen=True, slots=True)
class Pushed:
    url: str  # of the repository or its branch
    changed: bool  # there was something to commit
    replaced: tuple[str, ...]  # files that were there before and are now those of the run, or are equal
    kept: tuple[str, ...]  # files of the repository that the run has none of


def refuse_names(repo: str, branch: str | None) -> None:
    """Refuses names that no repository and no branch can have; asks no network. Raises UsageError with the reason."""
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils._validators import validate_repo_id

    try:
        validate_repo_id(repo)
    except HFValidationError as error:
        raise UsageError(f"{one_line(str(error), 200)} Name the repository as OWNER/NAME.") from None
    bad = branch is not None and (
        not branch
        or branch.startswith(("-", "/", "."))
        or branch.endswith(("/", ".", ".lock"))
        or ".." in branch
        or "//" in branch
        or not all(letter.isascii() and (letter.isalnum() or letter in "-_./") for letter in branch)
    )
    if bad:
        raise UsageError("--revision takes the name of a branch: letters, digits, '-', '_', '.' and '/'.")


def refuse_without_token() -> None:
    """Refuses to begin without a token or with HF_HUB_OFFLINE set; asks no network."""
    from huggingface_hub import constants, get_token

    if constants.HF_HUB_OFFLINE:
        raise UsageError("HF_HUB_OFFLINE is set, so nothing can be pushed. Take that variable away, or use --dry-run.")
    if not get_token():
        raise UsageError(f"there is no token of the hub. {LOG_IN}")


def pushed_weights(path: Path, *, model: bool) -> tuple[RunDir, Weights | None]:
    """Finds what would be pushed. Raises UsageError if it is not a run, or it has no final model yet."""
    run = open_run_dir(path)
    if not model:
        return run, None
    weights = find_run_weights(path)
    if weights.trained is None or not weights.trained.final:
        raise UsageError(
            f"{path} has no final model: {weights.note or 'it is not finished.'} Finish it with: grpo run --resume "
            f"{path}, or push its card and report alone with --no-model."
        )
    return run, weights


def make_folder(run: RunDir, weights: Weights | None, folder: Path, *, report: bool) -> Folder:
    """Writes what goes to the hub into `folder`, new or empty; it appears whole or not at all.

    `weights`: those of the final model, or None. Raises UsageError if the folder cannot be used, the base model cannot
    be loaded, or a file of the run was damaged or links out of it; RunError if the disk is full, or the merged weights
    are not finite.
    """
    folder = folder.expanduser().resolve()
    refuse_folder(folder)
    _refuse_links(run)
    base = _hub_base(run)
    kind = None
    if weights is not None:
        kind = "full" if weights.adapter is None else "adapter" if base is not None else "merged"
    own = run.base.is_dir() or (read_json(run.config) or {}).get("model") is not None
    embedded = base is None and not own  # the model that ships with the package, as it is
    contents = Contents(kind, base, embedded, report)
    card = card_of(run, contents)
    settings = public_config(read_json(run.config), base or (None if embedded else UNKNOWN_BASE))
    rollouts = 0
    try:
        with whole_folder(folder) as unfinished:
            if weights is not None:
                unfinished.rmdir()  # the export makes it
                export_weights(weights, unfinished, merge=kind == "merged")
                _forget_places(unfinished, base if kind == "adapter" else None)
            if report:
                written = write_report([run.path], unfinished / REPORT_FILE, limit=LARGEST_REPORT, public=settings)
                rollouts = written.held
            (unfinished / CONFIG_FILE).write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
            (unfinished / CARD_FILE).write_text(card, encoding="utf-8")
    except OSError as error:
        raise RunError(f"cannot write {folder}: {error.strerror or error}. Nothing was left there.") from error
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    return Folder(folder, contents, rollouts, {str(f.relative_to(folder)): f.stat().st_size for f in files})


def upload(folder: Folder, repo: str, *, private: bool, branch: str | None, message: str) -> Pushed:
    """Commits what `make_folder` wrote, in a repository and branch that are made if missing.

    Files of the same names are replaced, others stay. If somebody commits meanwhile, nothing is changed. `repo`:
    "owner/name", or a name of the token's owner. `private`: visible to its owner alone. `branch`: None: the main one.
    Raises RunError if the hub refused, could not be reached, or holds a public repository where a private one was asked
    for.
    """
    from huggingface_hub import CommitOperationAdd, HfApi

    with _explained(repo), _quiet():
        api = HfApi(library_name="grpo-kit")
        named = api.create_repo(repo, private=True if private else None, exist_ok=True).repo_id
        info = api.model_info(named)
        if private and info.private is False:
            raise RunError(
                f"{named} is there already and is public; --private changes no repository that exists. Nothing was "
                "uploaded. Make it private in its settings, or name another."
            )
        if branch is not None and branch != "main":
            api.create_branch(named, branch=branch, exist_ok=True)
            info = api.model_info(named, revision=branch)
        there = {file.rfilename for file in info.siblings or ()}
        additions = [CommitOperationAdd(name, str(folder.path / name)) for name in folder.sizes]
        done = api.create_commit(named, additions, commit_message=message, revision=branch, parent_commit=info.sha)
        return Pushed(
            url=f"{api.endpoint}/{named}" + (f"/tree/{branch}" if branch else ""),
            changed=done.oid != info.sha,
            replaced=tuple(sorted(there & folder.sizes.keys())),
            kept=tuple(sorted(there - folder.sizes.keys() - {".gitattributes"})),
        )


def _refuse_links(run: RunDir) -> None:
    """Refuses files that only seem to be of the run: what a link leads to would be published with it."""
    inside = run.path.resolve()
    read = (run.config, run.versions, run.state, run.metrics, run.rollouts, run.base, run.warmup, run.checkpoints)
    for place in (*read, run.model):
        for file in (place, *place.rglob("*")):
            if file.is_symlink() and not file.resolve().is_relative_to(inside):
                raise UsageError(
                    f"{file} is a link out of the run directory, to {file.resolve()}, which would be published with "
                    "the run. Put what it leads to in its place, or push a copy of the run without it."
                )


def _hub_base(run: RunDir) -> str | None:
    model = (read_json(run.config) or {}).get("model")
    if run.base.is_dir() or not isinstance(model, str) or not HUB_ID.fullmatch(model):
        return None
    return None if Path(model).exists() else model


def _forget_places(folder: Path, base: str | None) -> None:
    """Removes this machine's folders from the settings of a model; an adapter names its base by the hub's id."""
    for file in sorted(folder.glob("*config.json")):
        settings = json.loads(file.read_text(encoding="utf-8"))
        kept = {key: value for key, value in settings.items() if key not in NAMING}
        if base is not None and "base_model_name_or_path" in settings:
            kept["base_model_name_or_path"] = base
        if kept != settings:
            file.write_text(json.dumps(kept, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


@contextmanager
def _quiet() -> Iterator[None]:
    from huggingface_hub.utils.tqdm import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

    before = are_progress_bars_disabled()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        disable_progress_bars()
        try:
            yield
        finally:
            if not before:
                enable_progress_bars()


@contextmanager
def _explained(repo: str) -> Iterator[None]:
    try:
        yield
    except GrpoError:
        raise
    except Exception as error:
        raise RunError(f"cannot push to {repo}: {_why(_causes(error))}") from error


def _causes(error: BaseException) -> list[BaseException]:
    causes: list[BaseException] = []
    after: BaseException | None = error
    while after is not None and after not in causes:
        causes.append(after)
        after = after.__cause__
    return causes


def _why(errors: Sequence[BaseException]) -> str:
    import httpx
    from huggingface_hub import constants
    from huggingface_hub.errors import HfHubHTTPError

    for error in errors:
        if isinstance(error, HfHubHTTPError):
            status = error.response.status_code
            detail = f" It says: {one_line(error.server_message, 200)}" if error.server_message else ""
            words = WORDS.get(status)
            if words is None and status >= 500:
                words = "the hub has a failure. Run the same command again later: it completes the rest."
            return f"{words or 'the hub refused it. Check what the line says.'} (HTTP {status}){detail}"
        if isinstance(error, (httpx.TransportError, ConnectionError)):
            return (
                f"no answer from {constants.ENDPOINT} ({type(error).__name__}). Check the network, then run the same "
                "command again: it completes the rest."
            )
    last = errors[0]
    return f"{one_line(str(last), 200)} ({type(last).__name__}). Run the same command again: it completes the rest."
