"""What libraries look up while they load is the same as without the faster lookups, and those end with the loading."""

from __future__ import annotations

import importlib.metadata
import inspect
import subprocess
import sys

import pytest

from grpo.core.processes.loading import loading
from grpo.core.processes.lookups import distributions_by_package

SCANNED = """
import importlib.util, sys
from pathlib import Path
from grpo.core.processes.loading import loading

finders = list(sys.meta_path)
with loading():
    import transformers
    import transformers.models
    from transformers.utils import import_utils as ours
assert sys.meta_path == finders

spec = importlib.util.spec_from_file_location("transformers.utils.afresh", ours.__file__)
theirs = importlib.util.module_from_spec(spec)
spec.loader.exec_module(theirs)
models = str(Path(transformers.__file__).parent / "models" / "__init__.py")
scan = ours.create_import_structure_from_path
print(scan.cache_info().hits > 400, scan(models) == theirs.create_import_structure_from_path(models))
print(ours.define_import_structure(models) == theirs.define_import_structure(models))
"""


def test_every_installed_package_has_the_distributions_that_python_names() -> None:
    ours, theirs = distributions_by_package(), importlib.metadata.packages_distributions()
    assert {package: ours.get(package) for package in theirs} == theirs
    assert all(importlib.metadata.version(name) for names in ours.values() for name in names)


def test_a_frame_has_the_module_that_python_finds_and_code_without_one_has_none() -> None:
    foreign = eval("__import__('inspect').currentframe()", {"__name__": "no.such.module"})
    things = [inspect.currentframe(), foreign, pytest, pytest.raises]
    usual = [inspect.getmodule(thing) for thing in things]
    lookup = inspect.getmodule
    with loading():
        assert inspect.getmodule is not lookup
        assert [inspect.getmodule(thing) for thing in things] == usual
    assert usual[0] is sys.modules[__name__]
    assert inspect.getmodule is lookup


@pytest.mark.slow
def test_transformers_finds_the_same_models_and_reads_their_files_once() -> None:
    done = subprocess.run([sys.executable, "-c", SCANNED], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["True True", "True"]
