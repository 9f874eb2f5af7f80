"""Links ES modules into one classic script, which a page can hold and its policy can name by one digest.

Allowed are `import { a, b } from "./x.js";` before everything else, and `export` before a `const` or a `class`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

IMPORT = re.compile(r'^import \{([^}]*)\} from "\./([a-z]+\.js)";\n', re.MULTILINE)
TYPES = re.compile(r"^ */\*\*(?:(?!\*/).)*\*/\n", re.MULTILINE | re.DOTALL)  # comments that only the type checker reads
HEAD = re.compile(rf"(?://.*\n|\n|{IMPORT.pattern})*", re.MULTILINE)
EXPORT = re.compile(r"^export (?=const ([\w$]+) =\s|class ([\w$]+) )", re.MULTILINE)
REFUSED = re.compile(r"^\s*(?:import|export)\b.*|\bimport\s*[(.].*", re.MULTILINE)
NAME = re.compile(r"[A-Za-z_$][\w$]*")


class LinkError(ValueError):
    """A module cannot be linked."""


@dataclass(frozen=True, slots=True)
class Module:
    imports: dict[str, tuple[str, ...]]  # names by the files of the modules that export them
    exports: tuple[str, ...]  # its own names for other modules
    code: str  # without imports, exports and comments for the type checker


def link(folder: Path, entry: str) -> str:
    """Returns a script that runs a module and all that it imports; LinkError for a form that is not allowed."""
    functions = (_function(file, module) for file, module in linked_modules(folder, entry).items())
    return f'"use strict";\n(() => {{\n{"".join(functions)}}})();\n'


def linked_modules(folder: Path, entry: str) -> dict[str, Module]:
    """Returns a module and all that it imports by their files, each after those that it imports itself."""
    modules: dict[str, Module] = {}
    _add(folder, entry, modules, ())
    return modules


def _add(folder: Path, file: str, modules: dict[str, Module], importers: tuple[str, ...]) -> None:
    if file in importers:
        raise LinkError(f"circular import: {' -> '.join((*importers[importers.index(file) :], file))}.")
    if file in modules:
        return
    try:
        text = (folder / file).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise LinkError(f"{' -> '.join((*importers, file))}: there is no such module.") from None
    module = _parsed(file, text)
    for imported, names in module.imports.items():
        _add(folder, imported, modules, (*importers, file))
        for name in names:
            if name not in modules[imported].exports:
                raise LinkError(f"{file} imports '{name}', which {imported} does not export.")
    modules[file] = module


def _parsed(file: str, text: str) -> Module:
    text = TYPES.sub("", text)
    head = HEAD.match(text)
    assert head is not None  # it matches the empty text
    imports: dict[str, tuple[str, ...]] = {}
    for names, imported in IMPORT.findall(head.group()):
        parts = [name.strip() for name in names.removesuffix("\n").rstrip(", ").split(",")]
        if imported in imports or not all(map(NAME.fullmatch, parts)):
            raise LinkError(f"{file}: the import from {imported} is not of the form 'import {{ a, b }}', once.")
        imports[imported] = tuple(parts)
    body = text[head.end() :]
    exports = tuple(constant or declared for constant, declared in EXPORT.findall(body))
    code = EXPORT.sub("", body)
    if refused := REFUSED.search(code):
        raise LinkError(f"{file}: '{refused.group().strip()}' is a form of import or export that is not allowed.")
    return Module(imports, exports, IMPORT.sub("", head.group()) + code)


def _function(file: str, module: Module) -> str:
    imports = "".join(f"const {{ {', '.join(names)} }} = {_variable(own)};\n" for own, names in module.imports.items())
    exports = f"return {{ {', '.join(module.exports)} }};\n"
    return f"const {_variable(file)} = (() => {{\n{imports}{module.code}{exports}}})();\n"


def _variable(file: str) -> str:
    return f"${file.removesuffix('.js')}"
