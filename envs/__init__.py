"""Offers the built-in environments and samplers to the host, and the environments to gymnasium as `grpo/`.

Specs are imported inside the hook: at the top, `guess` and `wordle` would hide the folders of these names.
"""

from __future__ import annotations

from grpo.envs.registration import register_when_imported
from grpo.plugins.contract import CONTRACT
from grpo.plugins.hookspecs import hookimpl
from grpo.plugins.specs import EnvSpec, SamplerSpec

grpo_contract = CONTRACT

register_when_imported(
    {
        "grpo/arithmetic-v1": "grpo.envs.arithmetic.spec:ARITHMETIC",
        "grpo/code-v1": "grpo.envs.code.spec:CODE",
        "grpo/countdown-v1": "grpo.envs.countdown.spec:COUNTDOWN",
        "grpo/email-v1": "grpo.envs.email.spec:EMAIL",
        "grpo/gsm8k-v1": "grpo.envs.gsm8k.spec:GSM8K",
        "grpo/guess-v1": "grpo.envs.guess.spec:guess",
        "grpo/mcp-v1": "grpo.envs.mcp.spec:MCP",
        "grpo/python-tool-v1": "grpo.envs.python_tool.spec:PYTHON_TOOL",
        "grpo/rows-v1": "grpo.envs.rows.spec:ROWS",
        "grpo/wordle-v1": "grpo.envs.wordle.spec:wordle",
    }
)


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
