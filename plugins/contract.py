"""Versions the plugin contract, and explains why a package for another version cannot be loaded.

`CONTRACT` rises by one when a public name or a hook goes or changes (tests/public_api.txt). A package states its
contract beside its hooks, `grpo_contract = 1`; only the same number is loaded.
"""

from __future__ import annotations

CONTRACT = 1
STATEMENT = "grpo_contract"


def contract_fault(stated: object) -> str:
    """Returns why a package that states this contract cannot be loaded, or ""."""
    if type(stated) is int and stated == CONTRACT:
        return ""
    if not isinstance(stated, int) or isinstance(stated, bool) or stated < 1:
        return (
            f"{STATEMENT} is {stated!r}; write the number of the contract that the package was written for, as in "
            f"{STATEMENT} = {CONTRACT}"
        )
    update = "a newer grpo-kit, or an older release of it" if stated > CONTRACT else "a newer release of it"
    return (
        f"it was written for contract {stated}, and {_ours()}, which means other names or hooks; install {update} (its "
        f"author states {STATEMENT} = {CONTRACT} once it works with docs/plugins.md as it is now)"
    )


def stated_by(plugin: object) -> object:
    """Returns the contract that a module or object with hooks states; 1 without a statement."""
    return getattr(plugin, STATEMENT, 1)


def import_fault(error: BaseException) -> tuple[str, bool]:
    """Returns a message about a plugin's missing import, and whether its contract is the cause."""
    if not isinstance(error, ImportError) or str(error.name).partition(".")[0] != "grpo":
        return "", False
    stated = _stated_in_source(error)
    fault = contract_fault(stated)
    if fault:
        return fault, True
    return (
        f"{_ours()}: the name came with a newer release (pip install -U grpo-kit), or it is private and not in "
        "docs/plugins.md"
    ), False


def _stated_in_source(error: BaseException) -> object:
    import ast
    import traceback
    from pathlib import Path

    for frame in traceback.extract_tb(error.__traceback__):
        if frame.name != "<module>" or not Path(frame.filename).is_file():
            continue
        try:
            body = ast.parse(Path(frame.filename).read_bytes()).body  # bytes: the file may name an encoding of its own
        except (OSError, SyntaxError, ValueError):  # no source, or not any more
            continue
        for node in body:
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            names = [target.id for target in targets if isinstance(target, ast.Name)]
            if STATEMENT in names and isinstance(value := getattr(node, "value", None), ast.Constant):
                return value.value
    return 1


def _ours() -> str:
    import importlib.metadata

    try:
        release = importlib.metadata.version("grpo-kit")
    except importlib.metadata.PackageNotFoundError:
        release = "from a folder"
    return f"this is grpo-kit {release} with contract {CONTRACT}"
