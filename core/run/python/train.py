"""Implements `grpo.train`, which is `grpo run` for scripts and notebooks and also takes plugins that are objects."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal, overload

from grpo.core.config.python_objects import asked_otherwise, names_of, refuse_missing
from grpo.core.config.schema import RunConfig, parse_config
from grpo.core.display.notebook import display_here
from grpo.core.display.progress import Progress
from grpo.core.env.mixture import bound_envs
from grpo.core.planning.objective import bind_objective
from grpo.core.planning.output import RUNS
from grpo.core.policy.weights import run_config
from grpo.core.record.run_dir import RunDir, open_run_dir
from grpo.core.run.begin import absolute_paths
from grpo.core.run.job import dry_run as look
from grpo.core.run.job import resume as resume_run
from grpo.core.run.job import start
from grpo.core.run.python.keywords import by_keywords, in_python, leaves, settings_tree
from grpo.core.run.python.objects import PluginObjects
from grpo.core.run.python.process_state import unchanged_process
from grpo.core.run.python.result import Run
from grpo.core.run.python.rows import WrittenRows, written_rows
from grpo.plugins._host.loading import GIVEN
from grpo.plugins.errors import GrpoError, UsageError
from grpo.plugins.host import ARGUMENT, Host
from grpo.plugins.specs import EnvSpec, Kind, RewardSpec, SamplerSpec, VerifierSpec

if TYPE_CHECKING:
    import gymnasium

Table = Mapping[str, Any]
Env = str | Table | EnvSpec | type["gymnasium.Env[Any, Any]"]
Reward = str | Table | RewardSpec | Callable[..., Any]
Verifier = str | Table | VerifierSpec | Callable[..., Any]
Sampler = str | Table | SamplerSpec
OBJECTIVE: dict[Kind, str] = {"loss": "type", "advantage": "advantage"}
"""The settings of the section loss that name a plugin, by its kind."""


@overload
def train(
    env: Env | Sequence[Env] | None = ...,
    rewards: Reward | Sequence[Reward] = ...,
    *,
    dry_run: Literal[True],
    **settings: Any,
) -> None: ...


@overload
def train(
    env: Env | Sequence[Env] | None = ...,
    rewards: Reward | Sequence[Reward] = ...,
    *,
    env_rewards: Mapping[str, Reward | Sequence[Reward]] | None = ...,
    verifier: Verifier | None = ...,
    sampler: Sampler | None = ...,
    dataset: Any = ...,
    system: str | None = ...,
    resume: str | Path | Run | None = ...,
    dry_run: Literal[False] = ...,
    quiet: bool = ...,
    **settings: Any,
) -> Run: ...


def train(
    env: Env | Sequence[Env] | None = None,
    rewards: Reward | Sequence[Reward] = (),
    *,
    env_rewards: Mapping[str, Reward | Sequence[Reward]] | None = None,
    verifier: Verifier | None = None,
    sampler: Sampler | None = None,
    dataset: Any = None,
    system: str | None = None,
    resume: str | Path | Run | None = None,
    dry_run: bool = False,
    quiet: bool = False,
    **settings: Any,
) -> Run | None:
    """Trains a policy on an environment.

    A plugin is a SPEC as on the command line, a table of one (`{"name": near, "weight": 2}`), or an object: a spec, a
    function `near(completion, answer)` as a reward or verifier of its name, a function `run(task, access)` as an agent,
    a class of `gymnasium.Env`.

    Stopping the cell, or Ctrl-C, ends the run after the step that is under way, and returns it with the status
    "interrupted"; a second time stops at once. Either way `resume` continues it.

    Args:
        env: the environment, or several; default, with a data set: `rows`.
        rewards: what is scored; none: the environment's own.
        env_rewards: an environment's name to rewards for it alone.
        verifier: what decides accuracy; None: the environment's own.
        sampler: what chooses the prompts of a step; None: their order is fixed before the run starts.
        dataset: the rows: a file or a hub dataset, a list of dictionaries, a pandas DataFrame, a `datasets.Dataset`,
            or a dictionary with one of these for "train" and one for "test". Rows go to a file beside the run.
        system: the system message: the environment's option of that name.
        resume: a run, or its directory, to continue with its own settings; objects that it was given are given again.
            With more `steps` than it has, a run that is over is made longer.
        dry_run: check everything, show the plan, train nothing.
        quiet: show warnings only.
        settings: those of docs/configuration.md: sections as dictionaries (`train={"lr": 1e-4}`), or the names of the
            flags of `grpo run` (`lr=1e-4`, `steps=60`, `lora=True`); `model` may be a run, `loss`, `advantage` and
            `agent` what their decorators made of a function, and `agent` also a plain function.

    Returns:
        The run, done or interrupted; None for a dry run.

    Raises:
        UsageError: it cannot start, or has other settings than the run that is resumed; nothing was loaded.
        RunError: it had to stop; `resume` continues it.
    """
    display = display_here(quiet=quiet)
    rows = WrittenRows("", {})

    def worded(text: str) -> str:
        return in_python(rows.named(by_keywords(text, settings)))

    display.reworded = worded
    try:
        with ExitStack() as left:
            if isinstance(settings.get("model"), Run):
                settings["model"] = settings["model"].path
            if not isinstance(env_rewards, (Mapping, type(None))):
                raise UsageError(
                    'env_rewards is a dictionary: env_rewards={"NAME": [...]}, by the names of the environments.'
                )
            if not isinstance(system, (str, type(None))):
                raise UsageError(f"system={system!r} is no text. Give the system message as a string, or leave it out.")
            tree = settings_tree(settings)
            agent = tree.pop("agent", None)
            if dataset is not None:
                scratch = Path(left.enter_context(TemporaryDirectory())) if dry_run else None
                rows = written_rows(dataset, scratch or _beside(tree.get("out"), resume))
                tree["dataset"] = rows.source
                env = "rows" if env is None and resume is None else env
            if resume is None and env is None:
                raise UsageError(
                    "grpo.train needs an environment, for example env='gsm8k', or rows of your own, as in "
                    "dataset=[{'question': ..., 'answer': ...}, ...]. List the environments with: grpo plugins"
                )
            if resume is not None and dry_run:
                raise UsageError("dry_run is for a new run: leave resume out.")
            host = Host.discover()
            objects = PluginObjects(host, display.warned)
            envs = objects.refs("env", env)
            if resume is not None and system is not None and not envs:
                envs = [{"name": name} for name in names_of(run_config(_run_dir(resume)))["env"]]
            plugins: dict[str, Any] = {
                "env": _with_system(envs, system),
                "rewards": objects.refs("reward", rewards) or None,
                "env_rewards": {name: objects.refs("reward", own) for name, own in (env_rewards or {}).items()} or None,
                "verifier": None if verifier is None else objects.ref("verifier", verifier),
                "sampler": None if sampler is None else objects.ref("sampler", sampler),
                "agent": None if agent is None else objects.ref("agent", agent),
            }
            return _run(tree, plugins, objects, host, display, resume, dry=dry_run)
    except GrpoError as error:
        error.args = tuple(worded(part) if isinstance(part, str) else part for part in error.args)
        if isinstance(error, UsageError):
            rows.remove()
        # It says all; a notebook would show every frame below, and of every cause. What broke a run may be a plugin.
        raise error.with_traceback(None) from None if isinstance(error, UsageError) else error.__cause__
    except KeyboardInterrupt as interrupt:  # asked for, so the place where it came is nothing to read
        raise interrupt.with_traceback(None) from None
    finally:
        display.close()


def _run(
    tree: dict[str, Any],
    plugins: Mapping[str, Any],
    objects: PluginObjects,
    host: Host,
    display: Progress,
    resume: str | Path | Run | None,
    *,
    dry: bool,
) -> Run | None:
    for kind, key in OBJECTIVE.items():
        if tree.get("loss", {}).get(key) is not None:
            tree["loss"][key] = objects.ref(kind, tree["loss"][key])
    given = {name: value for name, value in plugins.items() if value is not None}
    if resume is not None:
        run_dir, steps = _resumable(resume, given, objects.names, tree)
        with unchanged_process():
            return Run(resume_run(run_dir.path, host, display, steps).path)
    config = parse_config({**tree, **given})
    _refuse_unknown(config, host)
    with unchanged_process():
        if dry:
            look(config, host, display)
            return None
        return Run(start(config, host, display).path)


def _beside(out: Any, resume: str | Path | Run | None) -> Path:
    if resume is not None:
        return (resume.path if isinstance(resume, Run) else Path(resume).expanduser().absolute()).parent
    return RUNS if out is None else Path(out).expanduser().absolute().parent


def _run_dir(source: Any) -> RunDir:
    if not isinstance(source, (str, Path, Run)):
        raise UsageError(
            f"resume={source!r} is not a run. Give what grpo.train returned, or the path of a run directory."
        )
    return open_run_dir(source.path if isinstance(source, Run) else Path(source).expanduser())


def _with_system(envs: Sequence[Any], system: str | None) -> Any:
    if len(envs) != 1:
        if system is not None and envs:
            raise UsageError(
                'system is for one environment. Set it in its table: {"name": ..., "options": {"system": ...}}.'
            )
        return list(envs) or None
    env = envs[0]
    if system is None:
        return env
    if isinstance(env, str):
        return f"{env}{',' if '=' in env else ':'}system={json.dumps(system)}"
    return {**env, "options": {**env.get("options", {}), "system": system}}


def _refuse_unknown(config: RunConfig, host: Host) -> None:
    """Refuses wrong names and options before the libraries load, which takes seconds."""
    bound_envs(config, host)
    bind_objective(config, host)
    host.rewards(config.rewards)
    if config.verifier is not None:
        host.verifier(config.verifier)
    if config.sampler is not None:
        host.sampler(config.sampler)
    if config.agent is not None:
        host.agent(config.agent)


def _resumable(
    source: str | Path | Run, plugins: Mapping[str, Any], given: Mapping[Kind, Sequence[str]], tree: Mapping[str, Any]
) -> tuple[RunDir, int | None]:
    run_dir = _run_dir(source)
    recorded = run_config(run_dir)
    before = recorded.model_dump(mode="json")
    wanted = absolute_paths(parse_config(_merged({**before, **plugins}, tree)))
    known, called = names_of(recorded), names_of(wanted)
    for kind in called:
        other = next((name for name in called[kind] if name not in known[kind]), None)
        if other is not None:
            if f"{GIVEN}/{other}" in known[kind]:
                raise UsageError(
                    f"{run_dir.path} has the {kind} '{other}' of a script or a notebook. Give it itself, not its name."
                )
            own = "none" if kind in ("sampler", "agent") else "its environment's own"
            has = ", ".join(name.removeprefix(f"{GIVEN}/") for name in known[kind]) or own
            raise UsageError(
                f"{run_dir.path} has no {kind} '{other.removeprefix(f'{GIVEN}/')}'; it has: {has}. A run that is "
                f"resumed keeps its plugins. Leave {ARGUMENT[kind]} out, or give what has the same name."
            )
    if (other := asked_otherwise(recorded, wanted)) is not None:
        raise UsageError(
            f"{run_dir.path} has no {other}. A run that is resumed keeps its plugins as they are. Leave it out, or "
            "start another run."
        )
    refuse_missing(recorded, run_dir.path, given)
    now = leaves(wanted.model_dump(mode="json"))
    longer = wanted.train.steps if (wanted.train.steps or 0) > (recorded.train.steps or 0) else None
    for name, value in leaves(tree).items():
        if now[name] != leaves(before)[name] and not (longer and name == "train.steps"):
            raise UsageError(
                f"{run_dir.path} was started with {name} = {leaves(before)[name]!r}, not {value!r}. A run that is "
                "resumed keeps its settings: leave it out, or start another run."
            )
    return run_dir, longer


def _merged(before: Mapping[str, Any], tree: Mapping[str, Any]) -> dict[str, Any]:
    sections = {name: {**before[name], **own} for name, own in tree.items() if isinstance(own, Mapping)}
    return {**before, **tree, **sections}
