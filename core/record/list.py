"""Lists the run directories of a folder, oldest first, one `RunLine` for each, unreadable ones too."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from grpo.core.record.run_dir import (
    LONGEST_SETTINGS,
    ORIGIN,
    RunDir,
    in_use,
    is_run,
    lost_files,
    read_json,
    read_metrics,
    read_state,
)
from grpo.core.record.versions import plugin_locks
from grpo.plugins.errors import UsageError

HELD_OUT = "held_out/accuracy"
STATUSES = ("running", "done", "interrupted", "failed")  # that a run writes
UNKNOWN = "unknown"
SPENT = ("time/step", "time/held_out", "time/checkpoint")  # metrics that together are the time of a run


@dataclass(frozen=True, slots=True)
class RunLine:
    """One run in the list of runs."""

    path: Path  # the run directory
    # env, model: as configured; the model is "embedded" when none was named
    env: str = ""
    model: str = ""
    # SPECs for all environments but those in `env_rewards`; of a run that named none, the defaults that it had
    rewards: tuple[str, ...] = ()
    # an environment's name to the SPECs that were for it alone
    env_rewards: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    defaults: bool = False  # some environment is in neither or named none, and had its default rewards
    # "running", "done", "interrupted" (stopped by a signal), "failed", "killed" (it says that it runs, but no process
    # does), "unknown" (it says something else) or "unreadable"
    status: str = "unreadable"
    resumes: bool = False  # `grpo run --resume` continues it
    started: str = ""  # when it began, as ISO 8601 in UTC; "" where nobody knows
    # that its steps, held-out evaluations and checkpoints took; breaks before it was resumed do not count
    seconds: float = 0.0
    # step, steps: the last recorded step, and how many the run is to make
    step: int = 0
    steps: int | None = None
    reward: float | None = None  # mean total of the last step, or None
    # before, after: the first and the last held-out accuracy, or None
    before: float | None = None
    after: float | None = None
    problem: str | None = None  # why it is unreadable, or None


def list_runs(folder: Path) -> list[RunLine]:
    """Lists the runs in a folder, or the one that the folder is. Raises UsageError if there is no such folder."""
    if is_run(folder) or lost_files(folder):
        return [_line(folder)]
    if not folder.is_dir():
        raise UsageError(f"there is no folder {folder}. Name the folder that holds the runs.")
    runs = [child for child in folder.iterdir() if is_run(child) or lost_files(child)]
    return [_line(run) for run in sorted(runs, key=_age)]


def _age(path: Path) -> tuple[float, str]:
    try:
        return (path / "config.json").stat().st_mtime, path.name
    except OSError:  # it is being deleted
        return 0.0, path.name


def _line(path: Path) -> RunLine:
    if problem := lost_files(path):
        return RunLine(path=path, problem=problem)
    run = RunDir(path)
    started = _started(run)
    try:
        config, metrics = _read(run.config), read_metrics(run)
        held_out = [row[HELD_OUT] for row in metrics if row.get(HELD_OUT) is not None]
        rewards = [row["reward"] for row in metrics if row.get("reward") is not None]
        envs = config["env"] if isinstance(config["env"], list) else [config["env"]]
        env_rewards = {name: tuple(map(_spec, own)) for name, own in config.get("env_rewards", {}).items()}
        model = (_read(run.base / ORIGIN) or {}).get("trained") or config["model"] or "embedded"
        steps = config["train"]["steps"]
        if not isinstance(model, str) or not isinstance(steps, int | None):
            raise TypeError("its model is not a name, or its steps are no number")
        step = metrics[-1]["step"] if metrics else 0
        status = _status(run, whole=step >= (steps or 0))
        return RunLine(
            path=path,
            env=", ".join(map(_spec, envs)),
            model=model,
            rewards=tuple(map(_spec, config["rewards"])) or (() if env_rewards else _locked_rewards(run)),
            env_rewards=env_rewards,
            defaults=not config["rewards"] and len(envs) > len(env_rewards),
            status=status,
            resumes=status in ("interrupted", "failed", "killed"),
            started=started,
            seconds=sum(row.get(part) or 0.0 for row in metrics for part in SPENT),
            step=step,
            steps=steps,
            reward=rewards[-1] if rewards else None,
            before=held_out[0] if held_out else None,
            after=held_out[-1] if len(held_out) > 1 else None,
        )
    except (UsageError, OSError) as error:
        return RunLine(path=path, started=started, problem=str(error))
    except Exception as error:  # a file of another program, or another version; whatever it is, it hides no other run
        problem = f"{path} does not hold what a run writes: {type(error).__name__}: {error}"
        return RunLine(path=path, started=started, problem=problem)


def _started(run: RunDir) -> str:
    """Returns when a run began: as it says, or the age of its configuration; "" of one that is being deleted."""
    try:
        moment = datetime.fromisoformat(_read(run.versions)["started"])
    except Exception:  # a file of another program, or another version
        try:
            moment = datetime.fromtimestamp(run.config.stat().st_mtime, UTC)
        except OSError:
            return ""
    return moment.astimezone(UTC).isoformat(timespec="seconds")


def _status(run: RunDir, *, whole: bool) -> str:
    status = str(read_state(run).get("status", "running"))  # no state: it was about to start
    if status != "running":
        return status if status in STATUSES else UNKNOWN
    if in_use(run):
        return "running"
    return "done" if whole and run.model.is_dir() else "killed"


def _read(path: Path) -> Any:
    return read_json(path, longest=LONGEST_SETTINGS)


def _locked_rewards(run: RunDir) -> tuple[str, ...]:
    plugins = plugin_locks(_read(run.versions))
    return tuple(name.removeprefix("reward ") for name in plugins if name.startswith("reward "))


def _spec(source: Any) -> str:
    if not isinstance(source, dict):
        return str(source).removeprefix(f"{Path.cwd()}/")
    options = [f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in source.items()]
    return ":".join(filter(None, [source["name"], ",".join(o for o in options if not o.startswith("name="))]))
