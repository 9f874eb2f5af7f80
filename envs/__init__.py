"""Built-in environments: offered to the host by a hook, and to gymnasium under the namespace `grpo/`.

In: nothing. Out: the specs of the environments, and registrations that wait until gymnasium is imported. Importing
this package does not import gymnasium.
"""

from __future__ import annotations

from grpo.envs.arithmetic.spec import ARITHMETIC
from grpo.envs.code.spec import CODE
from grpo.envs.countdown.spec import COUNTDOWN
from grpo.envs.email.spec import EMAIL
from grpo.envs.gsm8k.spec import GSM8K
from grpo.envs.guess.spec import GUESS
from grpo.envs.gym.spec import GYM
from grpo.envs.openenv.spec import OPENENV
from grpo.envs.python_tool.spec import PYTHON_TOOL
from grpo.envs.reasoning_gym.spec import REASONING_GYM
from grpo.envs.registration import register_when_imported
from grpo.envs.textarena.spec import TEXTARENA
from grpo.envs.trl.spec import TRL
from grpo.envs.verifiers.spec import VERIFIERS
from grpo.envs.wordle.spec import WORDLE
from grpo.plugins.hookspecs import hookimpl
from grpo.plugins.specs import EnvSpec

for _spec in (ARITHMETIC, CODE, COUNTDOWN, EMAIL, GSM8K, GUESS, PYTHON_TOOL, WORDLE):
    register_when_imported(f"grpo/{_spec.name}-v{_spec.version}", entry_point=f"{_spec.factory.__module__}:make")


@hookimpl
def grpo_envs() -> list[EnvSpec]:
    """Returns the built-in environments."""
    families = [GYM, REASONING_GYM, TEXTARENA, TRL, OPENENV, VERIFIERS]
    return [GSM8K, CODE, COUNTDOWN, ARITHMETIC, EMAIL, GUESS, WORDLE, PYTHON_TOOL, *families]


if __name__ == "envs":
    raise ImportError("import this package as grpo.envs; the folder 'envs' is not importable under its bare name")
