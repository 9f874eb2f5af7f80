"""Finds how many tokens the sequences of a run have, without the weights of its model."""

from __future__ import annotations

from grpo.core.config.schema import RunConfig
from grpo.core.config.settings import RolloutSettings, settle
from grpo.core.planning.facts import gather_facts, read_model
from grpo.core.planning.lengths import decide_lengths, longest_of
from grpo.core.planning.rows import read_rows, start_envs
from grpo.core.planning.steps import decide_steps
from grpo.core.planning.turns import decide_turns
from grpo.plugins.host import Host


def context_of(config: RunConfig, host: Host) -> int:
    """Returns the most tokens of a prompt and what follows it, over the rows of a run.

    Raises:
        UsageError: the environments, the rewards or the model's tokenizer cannot be used so.
        DatasetError: the rows cannot be used, or a prompt is too long.
        PluginError: an environment breaks the contract.
    """
    facts = gather_facts(config, host)
    rows = read_rows(config, facts)
    envs, _ = start_envs(config, facts, rows, decide_steps(config, facts, rows))
    model = read_model(facts.source.path, facts.source.tokenizer, config.chat_template_kwargs)
    lengths = decide_lengths(config, facts)
    longest = longest_of(config, envs, model, lengths)
    agent = config.agent is not None
    turns = decide_turns(config.rollout, facts.envs, lengths, model.room(longest), agent=agent)
    return longest + settle(RolloutSettings, config.rollout, lengths, turns).length
