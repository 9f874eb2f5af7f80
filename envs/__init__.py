"""Offers the built-in environments and samplers to the host, and the environments to gymnasium as `grpo/`.

Specs are imported inside the hook: at the top, `guess` and `wordle` would hide the folders of these names.
"""

from __future__ import annotations

from grpo.envs.registration import register_when_imported
from grpo.plugins.contract import CONTRACT
from grpo.plugins.hookspecs import hookimpl
from grpo.plugins.specs import EnvSpec, SamplerSpec

grpo_contract = CONTRACT
_PLACES = {
    "arithmetic-v1": "arithmetic.spec:ARITHMETIC",
    "code-v1": "code.spec:CODE",
    "countdown-v1": "countdown.spec:COUNTDOWN",
    "email-v1": "email.spec:EMAIL",
    "gsm8k-v1": "gsm8k.spec:GSM8K",
    "guess-v1": "guess.spec:guess",
    "mcp-v1": "mcp.spec:MCP",
    "python-tool-v1": "python_tool.spec:PYTHON_TOOL",
    "rows-v1": "rows.spec:ROWS",
    "wordle-v1": "wordle.spec:wordle",
}

for _name, _place in _PLACES.items():
    register_when_imported(f"grpo/{_name}", entry_point=f"grpo.envs.{_place}")


@hookimpl
def grpo_envs() -> list[EnvSpec]:
    from grpo.envs.arithmetic.spec import ARITHMETIC
    from grpo.envs.code.spec import CODE
    from grpo.envs.countdown.spec import COUNTDOWN
    from grpo.envs.email.spec import EMAIL
    from grpo.envs.gsm8k.spec import GSM8K
    from grpo.envs.guess.spec import guess
    from grpo.envs.gym.spec import GYM
    from grpo.envs.mcp.spec import MCP
    from grpo.envs.openenv.spec import OPENENV
    from grpo.envs.python_tool.spec import PYTHON_TOOL
    from grpo.envs.reasoning_gym.spec import REASONING_GYM
    from grpo.envs.rows.spec import ROWS
    from grpo.envs.shell.spec import HARBOR, SHELL
    from grpo.envs.textarena.spec import TEXTARENA
    from grpo.envs.trl.spec import TRL
    from grpo.envs.verifiers.spec import VERIFIERS
    from grpo.envs.wordle.spec import wordle

    families: list[EnvSpec] = [GYM, REASONING_GYM, TEXTARENA, TRL, OPENENV, VERIFIERS, SHELL, HARBOR]
    return [ROWS, GSM8K, CODE, COUNTDOWN, ARITHMETIC, EMAIL, guess, wordle, PYTHON_TOOL, MCP, *families]


@hookimpl
def grpo_samplers() -> list[SamplerSpec]:
    from grpo.envs.samplers.curriculum import curriculum

    return [curriculum]


if __name__ == "envs":
    raise ImportError("import this package as grpo.envs; the folder 'envs' is not importable under its bare name")
