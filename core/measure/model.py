"""Measures weights on an environment: decides and checks everything first, then samples, judges and scores."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

from grpo.core.config.schema import RunConfig, parse_config
from grpo.core.config.setting import PluginRef
from grpo.core.config.settings import RolloutSettings, settle
from grpo.core.env.episodes import UNBOUNDED, Episode, episodes_of
from grpo.core.env.mixture import (
    nothing_judges,
    refuse_missing_columns,
    rewards_of,
    verifier_of,
    with_dataset,
    with_session,
)
from grpo.core.env.processes import starting_place
from grpo.core.env.questions import questions_of
from grpo.core.measure.evaluate import Evaluation, complete, evaluation_of
from grpo.core.planning.agent import AGENT_LIMITS, bound_agent
from grpo.core.planning.facts import read_model
from grpo.core.planning.held_out import hold_out
from grpo.core.planning.lengths import Limits, longest_prompt
from grpo.core.planning.turns import decide_turns, narrowed
from grpo.core.policy.chat_template import Value
from grpo.core.policy.load import end_ids
from grpo.core.policy.weights import Weights, load_weights
from grpo.core.record.agent_calls import without_ids
from grpo.core.rollout.hf.sampler import HfRollouts
from grpo.core.rollout.open import open_agents
from grpo.core.rollout.players import player_of
from grpo.core.rollout.types import SamplingParams
from grpo.core.scoring.scorer import Judgement, Scorer
from grpo.core.text.printable import counted
from grpo.plugins._host.loading import GIVEN
from grpo.plugins._spec.binding import BoundAgent, BoundEnv, BoundReward, BoundVerifier
from grpo.plugins._spec.spec_text import parse
from grpo.plugins.errors import RunError, UsageError
from grpo.plugins.host import Host
from grpo.plugins.types import Completion

_OF_RUN = ("env", "rewards", "env_rewards", "verifier", "agent", "session", "dataset")


@dataclass(frozen=True, slots=True)
class Choices:
    """What the user chose; None stands for the default, which a run directory may have."""

    # env, rewards, dataset: as for training
    env: PluginRef | None = None
    rewards: Sequence[str] = ()
    agent: PluginRef | None = None
    session: str | None = None
    dataset: str | None = None
    split: str = "test"  # "train" or "test"
    size: int | None = None  # use only the first rows
    samples: int = 1  # completions per problem
    temperature: float | None = None  # default: greedy for one sample, 1 for several
    max_tokens: int | None = None  # new tokens per completion
    seed: int = 0
    batch_size: int = 128  # completions decoded at once
    of_run: bool = False  # the environment is the run's own, and so are the defaults; so it is where `env` is None
    chat_template_kwargs: Mapping[str, Value] | None = None  # values for variables of the model's chat template
    fit: bool = False  # of the rewards take those whose columns the environment's rows have


@dataclass(frozen=True, slots=True)
class EvaluationPlan:
    """A measurement that can start; the names are those of a run's plan."""

    weights: Weights
    choices: Choices
    env: BoundEnv
    rewards: tuple[BoundReward, ...]
    verifier: BoundVerifier | None
    episodes: Sequence[Episode]
    temperature: float
    rollout: RolloutSettings
    tokenizer: PreTrainedTokenizerBase
    notes: tuple[str, ...]
    agent: BoundAgent | None
    context: int | None


@dataclass(frozen=True, slots=True)
class Measurement:
    evaluation: Evaluation  # the numbers and everything that they were made from
    first_failure: Mapping[str, str]  # reward or verifier to the traceback of its first failure
    seconds: float  # wall time of sampling, judging and scoring


def for_each_env(weights: Weights, host: Host, choices: Choices, envs: Sequence[str]) -> list[Choices]:
    """Returns the choices for each environment that the user names (one of a run's by its name), else the run's."""
    run = weights.config
    own = {host.env(source).name: source for source in run.envs} if run is not None and len(run.envs) > 1 else {}
    wanted = list(envs) or list(own)
    if not wanted:
        return [choices]
    return [
        replace(choices, env=own.get(env, env), of_run=env in own, fit=env in own or len(wanted) > 1) for env in wanted
    ]


def plan_evaluation(weights: Weights, host: Host, choices: Choices) -> EvaluationPlan:
    """Decides and checks everything that can be decided without weights. Raises UsageError."""
    config, left_out = _config(weights, choices)
    [env] = with_session((with_dataset(host.env(config.envs[0]), config),), config)
    agent = bound_agent(config.agent, host, [env])
    host.rewards(config.rewards)  # whatever is wrong with them is said before rows are read
    temperature = choices.temperature if choices.temperature is not None else (0.0 if choices.samples == 1 else 1.0)
    if choices.samples > 1 and temperature == 0:
        raise UsageError(
            f"-n {choices.samples} at temperature 0 would give {choices.samples} equal completions per problem. "
            "Raise --temperature or leave out -n."
        )
    trained = weights.config is not None and (choices.env is None or choices.of_run) and choices.dataset is None
    model = read_model(weights.base, weights.tokenizer_source, choices.chat_template_kwargs)
    episodes, notes = _episodes(env, choices, config, of_run=trained)
    rewards = rewards_of(config, host, env, episodes[0].row, fit=choices.fit)
    verifier = verifier_of(config, host, env, episodes[0].row, fit=choices.fit)
    if not rewards and verifier is None:
        raise nothing_judges(env)
    refuse_missing_columns(episodes[0], [*rewards, *([verifier] if verifier else [])])
    completion = choices.max_tokens or weights.max_tokens
    limits = Limits(completion, setting="--max-completion-length")
    longest = longest_prompt(model, [(env, {choices.split: episodes})], limits)
    budgets = narrowed(config.rollout, env) if choices.of_run else config.rollout
    turns = decide_turns(budgets, [env], completion, model.room(longest), agent=agent is not None)
    rollout = settle(RolloutSettings, budgets, max_completion_length=completion, **asdict(turns))
    if agent is None:
        player_of(env, rollout, model.tokenizer, episodes)  # refuses before weights load
    return EvaluationPlan(
        weights=weights,
        choices=choices,
        env=env,
        rewards=rewards,
        verifier=verifier,
        episodes=episodes,
        temperature=temperature,
        rollout=rollout,
        tokenizer=model.tokenizer,
        notes=(*left_out, *notes),
        agent=agent,
        context=model.context,
    )


def _episodes(
    env: BoundEnv, choices: Choices, config: RunConfig, *, of_run: bool
) -> tuple[Sequence[Episode], tuple[str, ...]]:
    """Starts the episodes of a split, with notes; of a run's own "test" its held-out ones, UsageError if none."""
    opened = starting_place(env, config.rollout.env_processes, config.rollout.step_timeout)
    start = partial(episodes_of, env, opened=opened)
    size, made = choices.size, choices.size or UNBOUNDED
    trained = config.train.limit
    known = env.spec.dataset is not None or trained is not None
    if choices.split != "test" or not (of_run and known):
        episodes = start(choices.split, limit=size, unbounded=made)
        return episodes, tuple(_notes_on_tenth(env, episodes)) if choices.split == "test" else ()
    train = start("train", limit=trained, unbounded=0)
    divided = hold_out(env, train, size, made=made, opened=opened)
    if not divided.held_out:
        raise UsageError(f"{' '.join(divided.notes)} To measure what is trained on: --split train")
    return divided.held_out, divided.notes


def _notes_on_tenth(env: BoundEnv, episodes: Sequence[Episode]) -> Iterator[str]:
    for name in (str(env.options.get("dataset", "")), env.name.partition(":")[2]):
        if name and Path(name).is_file():
            count = counted(len(episodes), "problem")
            yield (
                f"{name} has no test split, so its last tenth (at most 500) is measured: {count}. "
                "--split train measures the rest. To measure every row, name a folder with the file as test.jsonl."
            )


def measure(plan: EvaluationPlan, *, loaded: Callable[[], None], sampled: Callable[[int], None]) -> Measurement:
    """Loads the weights, samples, judges and scores. Raises RunError if the GPU's memory is full."""
    import torch

    model, tokenizer = load_weights(plan.weights), plan.tokenizer
    loaded()
    params = SamplingParams(
        max_tokens=plan.rollout.max_completion_length,
        eos_ids=end_ids(tokenizer, model),
        pad_id=tokenizer.pad_token_id,
        temperature=plan.temperature,
    )
    start = time.perf_counter()
    torch.manual_seed(plan.choices.seed)
    own = [] if plan.weights.run is None else [str(plan.weights.run.path.resolve())]
    plugins: list[BoundReward | BoundVerifier] = [*plan.rewards, *([plan.verifier] if plan.verifier else [])]
    with (
        Scorer(plugins) as scorer,
        open_agents(plan.agent, [plan.env], plan.rollout, tokenizer, plan.context, lambda text: None, own) as agents,
    ):

        def judge(completions: Sequence[Completion]) -> Sequence[Judgement]:
            (judgements,) = scorer.judge(completions).values()
            return judgements

        rollouts = HfRollouts()
        rollouts.sync(model)
        try:
            completions = complete(
                rollouts,
                tokenizer,
                plan.episodes,
                params,
                samples=plan.choices.samples,
                batch_size=plan.choices.batch_size,
                on_batch=sampled,
                player=(
                    player_of(plan.env, plan.rollout, tokenizer, plan.episodes) if agents is None else agents.player()
                ),
            )
        except torch.OutOfMemoryError as error:
            raise RunError(
                f"the GPU's memory is full: {str(error).splitlines()[0]} Lower --batch-size {plan.choices.batch_size}."
            ) from error
        evaluation = evaluation_of(
            completions,
            plan.choices.samples,
            questions_of(plan.env, plan.episodes),
            judge if plan.verifier else None,
            scorer.score,
        )
        return Measurement(evaluation, dict(scorer.first_failure), time.perf_counter() - start)


def recorded(plan: EvaluationPlan, evaluation: Evaluation) -> list[dict[str, Any]]:
    """Returns one row per completion, as `grpo score` and `grpo verify` read it; sampled values win over columns."""
    rows: list[dict[str, Any]] = []
    for i, completion in enumerate(evaluation.completions):
        row: dict[str, Any] = {
            **completion.row,
            "completion": list(completion.messages) if plan.env.spec.played else completion.text,
            "prompt": list(completion.prompt),
            "problem": i // plan.choices.samples,
            "sample": i % plan.choices.samples,
            "tokens": len(completion.token_ids),
            "finish_reason": completion.finish_reason,
            **({"info": without_ids(completion.info)} if completion.info else {}),
            "env": completion.env,
            "scores": {name: outcomes[i].as_json() for name, outcomes in evaluation.outcomes.items()},
        }
        if evaluation.verdicts:
            row["verdict"] = evaluation.verdicts[i].as_json()
        rows.append(row)
    return rows


def _config(weights: Weights, choices: Choices) -> tuple[RunConfig, tuple[str, ...]]:
    """Merges the settings of the weights' run with the user's; another environment drops rewards and dataset."""
    tree: dict[str, Any] = {"model": None if weights.embedded else weights.base}
    of_run = choices.env is None or choices.of_run
    if weights.config is not None:
        run = weights.config.model_dump(mode="json")
        tree["model"] = run["model"]
        if of_run:
            tree |= {key: run[key] for key in _OF_RUN if key in run}
    left_out = () if choices.rewards else tuple(_leave_out_objects(tree))
    for name in ("env", "agent", "session", "dataset"):
        if getattr(choices, name) is not None:
            tree[name] = getattr(choices, name)
    if choices.rewards:
        tree["rewards"] = list(choices.rewards)
        tree.pop("env_rewards", None)
    if weights.config is not None and of_run:
        tree["train"] = {"limit": weights.config.train.limit}
        limits = ["max_turns", "max_rollout_length", "step_timeout", *AGENT_LIMITS]
        if weights.config.agent is not None:
            limits.remove("max_rollout_length")  # chosen by the prompts of training, and no limit of an agent's calls
        tree["rollout"] = {name: getattr(weights.config.rollout, name) for name in limits}
    return parse_config(tree), left_out


def _leave_out_objects(tree: dict[str, Any]) -> Iterator[str]:
    def kept(refs: Sequence[PluginRef]) -> Iterator[PluginRef]:
        for ref in refs:
            if (text := parse(ref)).distribution == GIVEN:
                objects.append(text.alias or text.name)
            else:
                yield ref

    objects: list[str] = []
    tree["rewards"] = [*kept(tree.get("rewards") or ())]
    named = {env: [*kept(refs)] for env, refs in (tree.get("env_rewards") or {}).items()}
    tree["env_rewards"] = {env: refs for env, refs in named.items() if refs}
    for name in objects:
        yield (
            f"reward '{name}' is not measured: grpo.train was given it as an object, which is in no file. Write it to "
            "one and name it, as in --reward my.py:NAME."
        )
