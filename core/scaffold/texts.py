"""The texts of a new plugin package that do not depend on its kind, as `string.Template`s.

The fields: $name, $distribution, $package, $kind, $article, $grpo (the requirement), $contract, $year.
"""

PYPROJECT = """\
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "$distribution"
version = "0.1.0"
description = "The $kind $name for grpo."
readme = "README.md"
license = "MIT"
license-files = ["LICENSE"]
requires-python = ">=3.11"
dependencies = ["$grpo"]

[project.optional-dependencies]
dev = ["pytest>=8.3"]

# The group is "grpo"; the name is free; the value is the module with the hooks.
[project.entry-points.grpo]
$name = "$package"

[tool.setuptools.packages.find]
where = ["src"]

[tool.setuptools.package-data]
$package = ["py.typed"]

[tool.pytest.ini_options]
testpaths = ["tests"]
filterwarnings = ["error"]
"""

README = """\
# $distribution

The $kind `$name` for grpo.

    pip install -e '.[dev]'
    grpo plugins show $kind:$name
    grpo plugins check $kind:$name
    pytest

$use

Everything that grpo knows of it is in `src/$package`; the entry point in `pyproject.toml` leads there. Raise
`version` in the source whenever some completion would score differently. `grpo_contract` says which contract of grpo
the package was written for; a host with another one says so and does not load it.
"""

CONTINUOUS_INTEGRATION = """\
name: tests
on: [push, pull_request]
jobs:
  tests:
    runs-on: ubuntu-latest
    strategy:
      matrix:
        python: ["3.11", "3.13"]
    steps:
      - uses: actions/checkout@v4
      - uses: actions/setup-python@v5
        with:
          python-version: $${{ matrix.python }}
          cache: pip
      - run: pip install -e '.[dev]'
      - run: grpo plugins check $kind:$name
      - run: pytest
"""

LICENSE = """\
MIT License

Copyright (c) $year the authors of $distribution

Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated
documentation files (the "Software"), to deal in the Software without restriction, including without limitation the
rights to use, copy, modify, merge, publish, distribute, sublicense, and/or sell copies of the Software, and to permit
persons to whom the Software is furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all copies or substantial portions of the
Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE
WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR
COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR
OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
"""

GITIGNORE = """\
__pycache__/
*.egg-info/
.pytest_cache/
.venv/
build/
dist/
"""

USES = {
    "reward": "Train with it: `grpo run --env gsm8k --reward $name`",
    "verifier": "Judge with it: `grpo verify --verifier $name --input rows.jsonl`",
    "env": "Train on it: `grpo run --env $name`",
    "sampler": "Train with it: `grpo run --env gsm8k --sampler $name`",
    "loss": "Train with it: `grpo run --env gsm8k --loss $name`",
    "advantage": "Train with it: `grpo run --env gsm8k --advantage $name`",
    "sandbox": "Run a program in it: `grpo sandbox run program.py --backend $name`. Attack it: "
    "`grpo sandbox check --backend $name`",
}
