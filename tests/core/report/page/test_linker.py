"""The linker of the page's modules: their order, what each sees of the others, and that they have no other forms."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import grpo.core.report.page
from grpo.core.report.page import LIST, LIVE, REPORT
from grpo.core.report.page.linker import link, linked_modules

PAGE = Path(grpo.core.report.page.__file__).parent


def written(folder: Path, **modules: str) -> Path:
    for name, text in modules.items():
        (folder / f"{name}.js").write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize("entry", [REPORT, LIVE, LIST])
def test_the_modules_of_every_page_link(entry: str) -> None:
    script = link(PAGE, entry)
    modules = linked_modules(PAGE, entry)
    assert list(modules)[-1] == entry
    for file, module in modules.items():
        for imported, names in module.imports.items():
            assert {*names} <= {*modules[imported].exports}, file
        assert not re.search(r"^\s*(?:import|export)\b|\bimport\s*[(.]", module.code, re.MULTILINE), file
    assert "</script" not in script.lower()
    assert "<!--" not in script


def test_every_export_of_the_page_is_imported_by_another_module() -> None:
    modules = {file: module for entry in (REPORT, LIVE, LIST) for file, module in linked_modules(PAGE, entry).items()}
    taken = {(file, name) for module in modules.values() for file, names in module.imports.items() for name in names}
    as_type = {
        (file, name)
        for text in (path.read_text("utf-8") for path in PAGE.glob("*.js"))
        for names, file in re.findall(r'@import \{ ([\w, ]+) \} from "\./([a-z]+\.js)"', text)
        for name in names.split(", ")
    }
    assert {(file, name) for file, module in modules.items() for name in module.exports} - taken - as_type == set()


def test_each_module_is_a_function_that_runs_once_and_after_those_it_imports(tmp_path: Path) -> None:
    written(
        tmp_path,
        last='// End.\n\nimport { twice } from "./middle.js";\nimport { one, Two } from "./first.js";\n\ntwice(Two);\n',
        middle='import {\n  one,\n} from "./first.js";\n\nexport const twice = () => 2 * one;\n',
        first="// Begins.\n\nconst own = 1;\nexport const one = own;\nexport class Two {}\n",
    )
    assert link(tmp_path, "last.js") == (
        '"use strict";\n(() => {\n'
        "const $first = (() => {\n// Begins.\n\nconst own = 1;\nconst one = own;\nclass Two {}\n"
        "return { one, Two };\n})();\n"
        "const $middle = (() => {\nconst { one } = $first;\n\nconst twice = () => 2 * one;\nreturn { twice };\n})();\n"
        "const $last = (() => {\nconst { twice } = $middle;\nconst { one, Two } = $first;\n"
        "// End.\n\n\ntwice(Two);\nreturn {  };\n})();\n"
        "})();\n"
    )


def test_comments_for_the_type_checker_are_left_out_and_code_between_them_stays(tmp_path: Path) -> None:
    lines = [
        "/** @param {number} a */",
        "const f = (a) => a;",
        "  /**",
        "   * @type {number}",
        "   */",
        "  f(/** @type {1} */ (2));",
        "  /** @type {1} */ (f)(3);",
        "",
    ]
    [module] = linked_modules(written(tmp_path, own="\n".join(lines)), "own.js").values()
    assert module.code == "const f = (a) => a;\n  f(/** @type {1} */ (2));\n  /** @type {1} */ (f)(3);\n"
