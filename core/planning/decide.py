"""Decides and refuses everything that can be known before a model loads; `make_plan` is the table of contents."""

from __future__ import annotations

from dataclasses import asdict

from grpo.core.agents.program import task_of
from grpo.core.config.schema import RunConfig
from grpo.core.config.settings import LossSettings, OutputSettings, RolloutSettings, Settings, TrainSettings, settle
from grpo.core.env.episodes import joined
from grpo.core.plan import Plan
from grpo.core.planning.agent import agent_warning, decide_agent
from grpo.core.planning.facts import gather_facts, read_model
from grpo.core.planning.lengths import decide_lengths, longest_of, sample_notes
from grpo.core.planning.memory.fit import Load, decide_memory
from grpo.core.planning.objective import bind_objective, refuse_replacing_what_teaches
from grpo.core.planning.output import decide_output, disk_bytes
from grpo.core.planning.rollout import decide_rollout, refuse_idle_partial, refuse_unfit_server
from grpo.core.planning.rows import decide_steps, read_rows, refuse_no_demonstrations, start_envs
from grpo.core.planning.sync import decide_sync
from grpo.core.planning.training import decide_batch, decide_optimizer, refuse_uneven_batch, slips
from grpo.core.planning.turns import decide_turns, short_of_turns, turn_notes
from grpo.core.policy.load import count_parameters, refuse_unknown_targets
from grpo.core.processes.loading import loading
from grpo.core.scoring.known import canaries_of
from grpo.plugins._spec.binding import Bound
from grpo.plugins.host import Host


@loading()
def make_plan(config: RunConfig, host: Host, *, fresh: bool = True, served: bool = True) -> Plan:
    """Decides and checks everything that can be decided without weights. Raises UsageError with the remedy.

    `fresh`: the run directory must not exist yet; False for a run that resumes. `served`: rollout servers are asked
    whether they fit; False for a plan that is only looked at.
    """
    facts = gather_facts(config, host)
    loss, advantage = bind_objective(config, host)
    agent = decide_agent(config, host, facts.envs, loss, advantage)
    refuse_uneven_batch(config, facts)
    optimizer = decide_optimizer(config, facts)
    sync = decide_sync(config, optimizer.dtype)
    correction = decide_rollout(config, facts.processes)
    save_every = decide_output(config, fresh=fresh)

    model = read_model(facts.source.path, facts.source.tokenizer, config.chat_template_kwargs)
    refuse_unknown_targets(config.lora, model.config)
    rows = read_rows(config, facts)
    steps = decide_steps(config, facts, rows)
    envs, divided = start_envs(config, facts, rows, steps)
    rewards = [reward for part in envs for reward in part.rewards]
    refuse_replacing_what_teaches(config, advantage, rewards)
    verifiers = [part.verifier for part in envs if part.verifier is not None]
    chosen_by = None if config.sampler is None else host.sampler(config.sampler)
    canaries = canaries_of(config.canaries.file, config.canaries.cases, rewards, verifiers)
    refuse_no_demonstrations(config, envs)
    if agent is not None:
        for part in envs:
            task_of(part.train[0])  # refuses a column of files that is none
    completion = decide_lengths(config, facts)
    longest = longest_of(config, envs, model, completion)
    turns = decide_turns(config.rollout, facts.envs, completion, model.room(longest), agent=agent is not None)
    budgets = {"max_completion_length": completion, **asdict(turns)}
    rollout = settle(RolloutSettings, config.rollout, weight_sync=sync, **budgets)
    several = agent is not None or (turns.max_turns is not None and not facts.source.embedded)
    micro = decide_batch(config, facts, longest, rollout.length, turns=several)
    notes = [
        *divided,
        *(short_of_turns(config.rollout, turns, completion, model.context) if agent is None else []),
        *slips(config, facts, optimizer, model.config),
        *(turn_notes(rollout, envs, model.tokenizer) if agent is None else [agent_warning(agent)]),
        *(part.env.spec.note for part in envs),
        *sample_notes(envs),
    ]
    used: list[Bound] = [*(bound for part in envs for bound in (part.env, *part.plugins)), loss, advantage]
    used += [plugin for plugin in (chosen_by, agent) if plugin is not None]
    most = [env.spec.max_turns for env in facts.envs] if agent is None else [rollout.turns]
    load = Load(micro, optimizer.dtype, rollout, longest, facts.processes, most)
    checkpointing = decide_memory(config, load, model.config)
    trained = {**asdict(optimizer), **asdict(steps), "micro_batch_size": micro, "checkpointing": checkpointing}
    sections = {
        "train": settle(TrainSettings, config.train, **trained),
        "loss": settle(LossSettings, config.loss, rollout_correction=correction),
        "rollout": rollout,
        "output": settle(OutputSettings, config.output, save_every=save_every),
    }
    settings = Settings(**dict(config) | sections)
    parameters = count_parameters(model.config)
    plan = Plan(
        config=settings,
        source=facts.source,
        model_config=model.config,
        tokenizer=model.tokenizer,
        envs=envs,
        loss=loss,
        advantage=advantage,
        train=joined([part.train for part in envs]),
        parameters=parameters,
        longest_prompt=longest,
        disk_bytes=disk_bytes(settings, parameters),
        processes=facts.processes,
        canaries=canaries,
        sampler=chosen_by,
        agent=agent,
        notes=tuple(dict.fromkeys(filter(None, notes))),
    )
    refuse_idle_partial(settings.rollout.partial, plan.longest_sampled)
    if served:
        refuse_unfit_server(plan)
    return plan


def context_of(config: RunConfig, host: Host) -> int:
    """Returns the most tokens of a prompt and what follows it, over the rows of a run.

    Raises UsageError, DatasetError for unusable rows or too long prompts, PluginError for a broken environment.
    """
    facts = gather_facts(config, host)
    model = read_model(facts.source.path, facts.source.tokenizer, config.chat_template_kwargs)
    rows = read_rows(config, facts)
    envs, _ = start_envs(config, facts, rows, decide_steps(config, facts, rows))
    completion = decide_lengths(config, facts)
    longest = longest_of(config, envs, model, completion)
    agent = config.agent is not None
    turns = decide_turns(config.rollout, facts.envs, completion, model.room(longest), agent=agent)
    budgets = {"max_completion_length": completion, **asdict(turns)}
    return longest + settle(RolloutSettings, config.rollout, **budgets).length
