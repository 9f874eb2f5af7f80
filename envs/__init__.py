"""Built-in environments: offered to the host by a hook, and to gymnasium under the namespace `grpo/`.

In: nothing. Out: the specs of the environments, and registrations that wait until gymnasium is imported. Importing
this package does not import gymnasium.
"""

from __future__ import annotations

from grpo.envs.code import CODE
from grpo.envs.gsm8k import GSM8K
from grpo.envs.registration import register_when_imported
from grpo.plugins.hookspecs import hookimpl
from grpo.plugins.specs import EnvSpec

register_when_imported("grpo/code-v1", entry_point="grpo.envs.code:make")
register_when_imported("grpo/gsm8k-v1", entry_point="grpo.envs.gsm8k:make")


@hookimpl
def grpo_envs() -> list[EnvSpec]:
    """Returns the built-in environments."""
    return [GSM8K, CODE]


if __name__ == "envs":
    raise ImportError("import this package as grpo.envs; the folder 'envs' is not importable under its bare name")
