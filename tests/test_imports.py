"""What is loaded when: the light parts stay light, the public names arrive on demand, every import is declared."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from made_run import made_run

import grpo

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("core", "plugins", "rewards", "envs", "kernels")
HEAVY = {
    "torch",
    "transformers",
    "trl",
    "vllm",
    "triton",
    "peft",
    "accelerate",
    "datasets",
    "numpy",
    "pyarrow",
    "openai",
    "ray",
}
HEAVY |= {"starlette", "uvicorn", "sympy", "mpmath", "math_verify", "latex2sympy2_extended"}
# Imported where an option asks for them, with a message when they are missing; their extras declare them.
OPTIONAL = {
    "deepspeed": "deepspeed",
    "bitsandbytes": "qlora",
    "docker": "docker",
    "httpx": "judge",
    "inspect_ai": "interop",
    "minigrid": "minigrid",
    "openai": "judge",
    "ray": "ray",
    "reasoning_gym": "reasoning-gym",
    "tensorboard": "tensorboard",
    "textarena": "textarena",
    "trackio": "trackio",
    "verifiers": "interop",
    "vllm": "vllm",
    "websockets": "openenv",
}
# Each comes with a declared distribution (h11 with uvicorn, anyio and mcp_types with mcp, mlflow with mlflow-skinny and
# opentelemetry with opentelemetry-sdk, of extras; yaml with transformers), at the version that it asks for, or is
# what a notebook runs in.
BROUGHT = {
    "IPython",
    "annotated_types",
    "anyio",
    "h11",
    "mcp",
    "mcp_types",
    "mlflow",
    "opentelemetry",
    "pydantic_core",
    "triton",
    "yaml",
}


def imported_by(*arguments: str, cwd: Path | None = None) -> set[str]:
    """Returns the modules that `python ARGUMENTS` imports."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *arguments], capture_output=True, text=True, check=True, cwd=cwd
    )
    return {line.rsplit("|", 1)[1].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}


def modules_of(package: str) -> list[str]:
    """Returns the dotted names of a package's modules."""
    files = sorted((ROOT / package).rglob("*.py"))
    names = [".".join(("grpo", *file.relative_to(ROOT).with_suffix("").parts)) for file in files]
    return [name.removesuffix(".__init__") for name in names]


def top_level(modules: set[str]) -> set[str]:
    return {module.split(".")[0] for module in modules}


@pytest.mark.parametrize(
    "arguments",
    [("-c", "import grpo"), ("-m", "grpo", "--help"), ("-m", "grpo", "--version"), ("-m", "grpo", "plugins")],
    ids=" ".join,
)
def test_the_command_line_starts_without_the_heavy_libraries(arguments: tuple[str, ...]) -> None:
    modules = imported_by(*arguments)
    assert "grpo" in modules
    assert not top_level(modules) & (HEAVY | {"gymnasium"})


RECORDED = '{"completion": "#### 4", "answer": "4"}\n'
OWN = """from grpo import Case, reward
@reward(version=1, range=(0.0, 1.0), cases=[Case("4", row={"answer": "4"}, expect=1.0)])
def right(completion: str, answer: str) -> float:
    return float(completion == answer)
"""


def test_scoring_judging_and_checking_start_without_torch_where_the_plugin_needs_none(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(RECORDED)
    (tmp_path / "right.py").write_text(OWN)
    made_run(tmp_path / "run", steps=1)
    for command in (
        "score --reward ./right.py:right --reward proximity --input rows.jsonl",
        "verify --verifier gsm8k --input rows.jsonl",
        "plugins check gsm8k.correctness",
        "show run",
        "report run --output page.html",
    ):
        modules = top_level(imported_by("-m", "grpo", *command.split(), cwd=tmp_path))
        assert "grpo" in modules
        assert not modules & {"torch", "transformers", "pandas", "gymnasium"}, command


def test_the_list_of_commands_needs_no_settings_and_their_flags_need_no_plugins() -> None:
    assert "pydantic" not in top_level(imported_by("-m", "grpo", "--help"))
    modules = imported_by("-m", "grpo", "run", "--help")
    assert "grpo.core.config.sections" in modules
    assert "grpo.plugins.host" not in modules
    assert not top_level(modules) & (HEAVY | {"gymnasium"})


def test_the_list_of_plugins_loads_none_of_the_slow_modules_that_it_can_do_without() -> None:
    """Each of these takes longer to import than a reward; together they were half of the command's time."""
    slow = {"asyncio", "email", "hashlib", "http", "importlib.metadata", "importlib.resources", "json", "logging"}
    slow |= {"multiprocessing", "pydantic", "random", "rich", "socket", "ssl", "subprocess", "tempfile", "tomllib"}
    slow |= {
        "traceback",
        "zipfile",
        "grpo.plugins._spec.binding",
        "grpo.plugins._host.source_file",
        "grpo.plugins.sandbox_job",
    }
    slow |= {"grpo.envs.datasets.sources", "grpo.envs.datasets.word_problems", "grpo.envs.text.templates"}
    grpo_command = str(Path(sys.executable).with_name("grpo"))
    for arguments in (["plugins"], ["--help"]):
        modules = imported_by(grpo_command, *arguments)
        assert "grpo.core.cli.main" in modules
        assert not modules & slow, arguments


def test_the_list_of_plugins_compiles_no_pattern_of_a_plugin() -> None:
    """Compiling all of them was a third of the command's time; `lazy_pattern` waits until one is used."""
    code = (
        "import re, sys\n"
        "places, compiled = [], re._compile\n"
        "def recorded(*arguments):\n"
        "    places.append(sys._getframe(2).f_globals['__name__'])\n"
        "    return compiled(*arguments)\n"
        "re._compile = recorded\n"
        "from grpo.plugins.host import Host\n"
        "assert len(Host.discover().registrations()) > 40\n"
        "print([place for place in places if place.startswith(('grpo.rewards', 'grpo.envs'))], len(places))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found, _, seen = done.stdout.rpartition(" ")
    assert (found, int(seen) > 0) == ("[]", True)


def test_settings_are_refused_before_the_libraries_that_train_are_loaded() -> None:
    modules = imported_by("-c", "import grpo\ntry: grpo.train(steps='many')\nexcept grpo.UsageError: pass")
    assert "grpo.core.run.job" in modules
    assert not top_level(modules) & {"transformers", "trl", "peft", "accelerate"}


def test_importing_grpo_loads_nothing_of_it() -> None:
    assert {m for m in imported_by("-c", "import grpo") if m.startswith("grpo.")} == set()


@pytest.mark.parametrize("package", ["plugins", "rewards"])
def test_the_contract_and_the_rewards_load_no_heavy_library_and_no_gymnasium(package: str) -> None:
    modules = imported_by("-c", f"import {', '.join(modules_of(package))}")
    assert f"grpo.{package}" in modules
    assert not top_level(modules) & (HEAVY | {"gymnasium"})


@pytest.mark.slow
def test_the_environments_load_gymnasium_and_its_numpy_alone() -> None:
    modules = imported_by("-c", f"import {', '.join(modules_of('envs'))}")
    assert "grpo.envs" in modules
    assert not top_level(modules) & (HEAVY - {"numpy"})


def test_every_public_name_is_loaded_when_it_is_asked_for() -> None:
    homes = ("grpo.plugins.", "grpo.core.", "grpo.envs.shell.spec", "grpo.envs.text.spaces", "pluggy")
    for name in grpo.__all__:
        assert getattr(grpo, name).__module__.startswith(homes), name
    assert set(grpo.__all__) < set(dir(grpo))


def test_authors_import_from_grpo_alone() -> None:
    """What docs and examples import; the page of the kernels is about a package of its own."""
    texts = [*(ROOT / "docs").glob("*.md"), *(ROOT / "examples").glob("grpo-*/**/*.py"), ROOT / "README.md"]
    found = {
        line.strip(" >")
        for file in texts
        for line in file.read_text().splitlines()
        if re.match(r"[ >]*(from grpo\.|import grpo\.)", line)
    }
    assert len(texts) > 20
    assert found == {
        "from grpo.kernels import linear_logp",
        "import grpo.envs",  # which makes them known to gymnasium
    }


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'rewards_of'"):
        _ = grpo.rewards_of


@pytest.mark.parametrize("package", [name for name in PACKAGES if name != "kernels"])
def test_a_package_under_its_bare_name_says_how_to_import_it(package: str) -> None:
    done = subprocess.run([sys.executable, "-c", f"import {package}"], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(f"ImportError: import this package as grpo.{package};")


def test_transformers_may_import_the_bare_folder_kernels() -> None:
    done = subprocess.run([sys.executable, "-c", "import kernels"], capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_every_imported_distribution_is_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = {name_of(requirement) for requirement in project["dependencies"]}
    for module, extra in OPTIONAL.items():
        assert any(name_of(r) == name_of(module) for r in project["optional-dependencies"][extra])
    distributions = metadata.packages_distributions()
    undeclared = []
    for package in PACKAGES:
        for file in (ROOT / package).rglob("*.py"):
            for module in imports_of(file) - OPTIONAL.keys() - BROUGHT - {"grpo"} - sys.stdlib_module_names:
                names = {name_of(name) for name in distributions.get(module, [module])}
                if not names & declared:
                    undeclared.append(f"{file.relative_to(ROOT)}: {module}")
    assert undeclared == []


def imports_of(file: Path) -> set[str]:
    """Returns the top-level names of all absolute imports in a file, wherever they stand."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.module, f"{file.relative_to(ROOT)}:{node.lineno}: a relative import"
            assert node.level == 0, f"{file.relative_to(ROOT)}:{node.lineno}: a relative import"
            found.add(node.module.split(".")[0])
    return found


def name_of(requirement: str) -> str:
    """Returns the normalised distribution name at the head of a requirement."""
    head = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert head
    return re.sub(r"[-_.]+", "-", head[0]).lower()
