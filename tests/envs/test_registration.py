"""Gymnasium knows our environments in whatever order things are imported, and importing them costs no gymnasium."""

from __future__ import annotations

import subprocess
import sys

import pytest
from patience import RUN

HEAVY = ("gymnasium", "numpy", "datasets", "pyarrow", "torch", "transformers", "trl")


def _python(code: str) -> str:
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=RUN)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_importing_the_environments_imports_nothing_heavy() -> None:
    code = f"import sys, grpo.envs; grpo.envs.grpo_envs(); print([m for m in {HEAVY} if m in sys.modules])"
    assert _python(code) == "[]"


@pytest.mark.slow
@pytest.mark.parametrize(
    "code",
    [
        "import grpo.envs, gymnasium; env = gymnasium.make('grpo/gsm8k-v1', size=5)",
        "import gymnasium, grpo.envs; env = gymnasium.make('grpo/gsm8k-v1', size=5)",
        "import gymnasium; env = gymnasium.make('grpo.envs:grpo/gsm8k-v1', size=5)",
        "import grpo.envs; from gymnasium.envs.registration import make; env = make('grpo/gsm8k-v1', size=5)",
        "import grpo.envs; from grpo.envs.gsm8k.spec import GSM8K; env = GSM8K(size=5); import gymnasium;"
        "gymnasium.spec('grpo/gsm8k-v1')",
        "import grpo.envs, gymnasium, importlib; importlib.reload(grpo.envs); env = gymnasium.make('grpo/gsm8k-v1')",
        "import grpo.envs, importlib; importlib.reload(grpo.envs); import gymnasium;"
        "env = gymnasium.make('grpo/gsm8k-v1', size=5)",
    ],
)
def test_the_environment_is_registered_in_every_import_order(code: str) -> None:
    assert _python(code + "; print(len(env.reset(seed=0)[0]) > 20)") == "True"


def test_the_import_of_gymnasium_looks_untouched() -> None:
    code = (
        "import sys; plain = len(sys.meta_path)\n"
        "import grpo.envs, importlib.util, inspect; assert importlib.util.find_spec('gymnasium').name == 'gymnasium'\n"
        "assert 'gymnasium' not in sys.modules\n"
        "import gymnasium, importlib.resources\n"
        "assert 'exec_module' not in vars(gymnasium.__loader__)\n"
        "assert 'import' in inspect.getsource(gymnasium)\n"
        "assert importlib.resources.files('gymnasium').joinpath('__init__.py').is_file()\n"
        "importlib.reload(grpo.envs); print(len(sys.meta_path) - plain)"
    )
    assert _python(code) == "1"


def test_gymnasium_imported_anew_is_registered_anew() -> None:
    code = (
        "import sys, grpo.envs, gymnasium\n"
        "for name in [n for n in sys.modules if n.partition('.')[0] == 'gymnasium']: del sys.modules[name]\n"
        "import gymnasium; print('grpo/gsm8k-v1' in gymnasium.registry)"
    )
    assert _python(code) == "True"


def test_a_missing_gymnasium_stays_an_ordinary_import_error() -> None:
    code = (
        "import sys, grpo.envs\n"
        "sys.meta_path[1:] = []\n"
        "try: import gymnasium\n"
        "except ModuleNotFoundError as error: print(error.name)"
    )
    assert _python(code) == "gymnasium"


def test_every_environment_with_rows_or_rules_of_its_own_is_registered_with_its_version() -> None:
    code = (
        "import grpo.envs, gymnasium\n"
        "ids = {f'grpo/{spec.name}-v{spec.version}' for spec in grpo.envs.grpo_envs() if spec.resolve is None}\n"
        "print(ids == {name for name in gymnasium.registry if name.startswith('grpo/')})"
    )
    assert _python(code) == "True"


def test_a_built_in_environment_lives_in_the_folder_of_its_name() -> None:
    code = (
        "import sys, grpo.envs; grpo.envs.grpo_envs()\n"
        "names = sorted({spec.name for spec in grpo.envs.grpo_envs()} - {'harbor'})\n"  # tasks for a shell, too
        "print([name for name in names if f'grpo.envs.{name.replace(chr(45), chr(95))}.spec' not in sys.modules])"
    )
    assert _python(code) == "[]"
