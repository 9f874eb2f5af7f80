"""Links the page's ES modules into one classic script, which a page can hold and its policy can name by one digest.

Each module becomes a function that runs once, after those that it imports. Modules are ours: they have no imports but
`import { a, b } from "./x.js";` and no exports but those of a `const` or a `class`, which a test looks for.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

IMPORT = re.compile(r'^import \{([^}]*)\} from "\./([a-z]+\.js)";\n', re.MULTILINE)
TYPES = re.compile(r"^ */\*\*(?:(?!\*/).)*\*/\n", re.MULTILINE | re.DOTALL)  # comments that only the type checker reads
EXPORT = re.compile(r"^export (?=const ([\w$]+) =\s|class ([\w$]+) )", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Module:
    imports: dict[str, tuple[str, ...]]  # names by the files of the modules that export them
    exports: tuple[str, ...]  # its own names for other modules
    code: str  # without imports, exports and comments for the type checker


def link(folder: Path, entry: str) -> str:
    """Returns a script that runs a module and all that it imports."""
    functions = (_function(file, module) for file, module in linked_modules(folder, entry).items())
    return f'"use strict";\n(() => {{\n{"".join(functions)}}})();\n'


def linked_modules(folder: Path, entry: str) -> dict[str, Module]:
    """Returns a module and all that it imports by their files, each after those that it imports itself."""
    modules: dict[str, Module] = {}

    def add(file: str) -> None:
        text = TYPES.sub("", (folder / file).read_text(encoding="utf-8"))
        imports = {imported: tuple(re.findall(r"[\w$]+", names)) for names, imported in IMPORT.findall(text)}
        for imported in imports:
            if imported not in modules:
                add(imported)
        exports = tuple(constant or declared for constant, declared in EXPORT.findall(text))
        modules[file] = Module(imports, exports, EXPORT.sub("", IMPORT.sub("", text)))

    add(entry)
    return modules


def _function(file: str, module: Module) -> str:
    imports = "".join(f"const {{ {', '.join(names)} }} = {_variable(own)};\n" for own, names in module.imports.items())
    exports = f"return {{ {', '.join(module.exports)} }};\n"
    return f"const {_variable(file)} = (() => {{\n{imports}{module.code}{exports}}})();\n"


def _variable(file: str) -> str:
    return f"${file.removesuffix('.js')}"
