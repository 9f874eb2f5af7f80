"""Removes what identifies a machine or a person from a record before it is published: folders, addresses, secrets."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from grpo.core.record.agent_calls import KEY, agent_of
from grpo.core.record.versions import LIBRARIES, plugin_locks
from grpo.core.text.secrets import names_secret, without_secrets

HIDDEN = "(left out)"
# A password may have slashes, commas and an @; what looks like a port is one. A scheme starts where its letters do.
_ADDRESS = re.compile(
    r"(?<![a-z0-9+.-])([a-z0-9+.-]++://)"
    r"(?:[^\s/:@,'\"]*:(?!\d{1,5}(?:/|,\w+=))[^\s'\"]{0,300}@|[^\s/@,'\"]*@)?([^\s/,'\"?#@]*)[^\s,'\"]*",
    re.IGNORECASE,
)
# A version of a plugin is no host.
_ACCOUNT = re.compile(r"(?<![\w.+-])[\w.+-]{2,}+@(?!v?\d)[\w.-]{3,}+(?::[\w.~-]*/[\w./~-]*)?")
_BYTE = r"(?:25[0-5]|2[0-4]\d|1?\d?\d)"
_NUMBERS = re.compile(
    rf"(?<![\w.-])(?<!==)(?!127\.|0\.0\.0\.0){_BYTE}(?:\.{_BYTE}){{3}}(?![\w-]|\.\d)"
    r"|(?<![\w:])(?:(?:[0-9a-f]{1,4}:){7}[0-9a-f]{1,4}"
    r"|(?:fe80|f[cd][0-9a-f]{2}|2[0-9a-f]{3})(?::[0-9a-f]{1,4}){0,6}::(?:[0-9a-f]{1,4}:?){0,6})(?!\w)",
    re.IGNORECASE,
)
_HOMES = ("home", "users")
_NOT = r"\s/,:;'\"()<>|"
_PART = rf"[^{_NOT}]+(?: ?\([^/()\n]{{0,40}}\))?"
_REST = rf"((?:{_PART}/)*+)([^{_NOT}]*)"
# Of each, one group is its folders and one its name. Between quotes anything is a path, a user may be called anything,
# and what the option of a compiler names begins at once.
_QUOTED = re.compile(r"(?<=['\"])(?:~[\w.-]*|\.{1,2})?/((?:[^'\"\n/]*/)++)([^'\"\n/]*)")
_HOME = re.compile(rf"(?<![/.~])/((?:home|Users)/(?:{_PART}(?: [^{_NOT}]+)?/)*+)([^{_NOT}]*)")
_OPTION = re.compile(rf"(?<=-[A-Z])/(?=[a-z]+/){_REST}")
# From a root, a home or a dot; not in the middle of a word or a formula, as the slash of a hub id or of a fraction is.
_PATH = re.compile(rf"(?<![\w/.~)\]}}%-])(?:(?:~[\w.-]*|\.{{1,2}})/|/(?={_PART}/)){_REST}")
_FILE = re.compile(
    r"(?<![\w.+@/-])/?(?:[\w.+@-]+/)++(?=[\w.+@-]*\.(?:py|ipynb|sh|jsonl?|parquet|arrow|csv|tsv|txt|md|log|toml|ya?ml|jinja"
    r"|safetensors|gguf|bin|pt|gz|zst|zip|html?)(?!\w|\.\w))"
)
_NOT_WINDOWS = r"\s\\/:*?\"'<>|,;()"
_REST_WINDOWS = rf"((?:[^{_NOT_WINDOWS}]+(?: [^{_NOT_WINDOWS}]+)?[\\/]{{1,2}})*+)([^{_NOT_WINDOWS}]*)"
_DRIVE = re.compile(rf"(?<!\w)[A-Za-z]:[\\/]{{1,2}}{_REST_WINDOWS}")
_SHARE = re.compile(rf"(?<![\w\\}}])(?:\\\\){{1,2}}[\w.-]{{2,}}\\{{1,2}}{_REST_WINDOWS}")
# Keys of a configuration that say where a run stood, and who watched it.
_PLACES = {"out", "server_url", "report_to", "project", "run_name", "run_group", "tags"}
_VERSION = re.compile(r"[0-9][\w.+!-]{0,60}")
# What the lock of a plugin says, by plugins/_host/lock.py.
_LOCKED = (
    *("kind", "name", "plugin", "version", "distribution", "distribution_version", "options", "weight", "reads", "mcp"),
    *("sha256", "combine", "gate", "passes", "given", "columns", "scope"),
)


def public_text(text: str) -> str:
    """Returns the text without folders, secrets, accounts, numbers of hosts and the private parts of addresses."""
    kept: list[str] = []

    def address(match: re.Match[str]) -> str:
        kept.append(match[1] + match[2])
        return f"\0{len(kept) - 1}\0"

    text = without_secrets(_ADDRESS.sub(address, text.replace("\0", "")), HIDDEN)
    text = _NUMBERS.sub(HIDDEN, _ACCOUNT.sub(HIDDEN, text))
    text = _SHARE.sub(_share, _DRIVE.sub(_windows, text))
    for pattern in (_QUOTED, _HOME, _OPTION, _PATH):
        text = pattern.sub(_name, text)
    return re.sub(r"\0(\d+)\0", lambda match: kept[int(match[1])], _FILE.sub("", text))


def _name(match: re.Match[str]) -> str:
    """Returns the name that a path leads to: of its file, else of its last folder, but not of a home folder."""
    folders, name = [part for part in re.split(r"[\\/]", match[1]) if part], match[2]
    if folders and folders[0].lower() in _HOMES and len([*folders, *filter(None, [name])]) <= 2:
        return "~"
    return name or (folders[-1] if len(folders) > 1 else match[0])


def _windows(match: re.Match[str]) -> str:
    r"""Returns the same for a path of Windows; what may as well be LaTeX (x:\Omega\to\R) stays."""
    home = re.split(r"[\\/]", match[1])[0].lower() in _HOMES
    return _name(match) if home or re.search(r"\.\w{1,6}$", match[2]) else match[0]


def _share(match: re.Match[str]) -> str:
    return match[0] if "{" in match[0] else _name(match)


def public_value(value: Any) -> Any:
    """Returns a value of JSON with every text in it, and every key, made public."""
    if isinstance(value, str):
        return public_text(value)
    if isinstance(value, Mapping):
        return {
            public_text(str(key)): HIDDEN if item and names_secret(str(key)) else public_value(item)
            for key, item in value.items()
        }
    return [public_value(item) for item in value] if isinstance(value, (list, tuple)) else value


def public_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a recorded rollout with public reasons of failures and agent output; the conversation stays."""
    shown = {
        **row,
        **{key: public_value(value) for key, value in row.items() if key.startswith("reason.") or key == "why"},
    }
    try:
        info = json.loads(row["info"] or "null")
    except ValueError:
        return shown
    if not isinstance(info, dict):
        return shown
    agent = dict(info)
    if agent_of(info) is not None:
        printed = {name: public_value(info[KEY][name]) for name in ("stdout", "stderr", "refused")}
        agent[KEY] = {**info[KEY], **printed}
    if "failure" in agent:
        agent["failure"] = public_value(agent["failure"])
    return shown if agent == info else {**shown, "info": json.dumps(agent)}


def public_config(config: Mapping[str, Any], model: str | None) -> dict[str, Any]:
    """Returns a run's settings as `grpo run --config` reads them elsewhere, `model` in the place of its own."""
    kept = {key: value for key, value in config.items() if key not in _PLACES and key != "model"}
    for name, section in kept.items():
        if name not in ("env", "env_rewards") and isinstance(section, Mapping):
            kept[name] = {key: value for key, value in section.items() if key not in _PLACES}
    shown: dict[str, Any] = public_value(kept)
    return {**shown, "model": model}


def public_versions(versions: Any) -> dict[str, Any]:
    """Returns the versions of known libraries, and of each plugin what its lock is known to say."""
    libraries = versions.get("libraries") if isinstance(versions, Mapping) else None
    known = libraries if isinstance(libraries, Mapping) else {}
    return {
        "libraries": {
            name: known[name] for name in ("python", *LIBRARIES) if _VERSION.fullmatch(str(known.get(name, "")))
        },
        "plugins": {public_text(str(name)): _public_lock(lock) for name, lock in plugin_locks(versions).items()},
    }


def _public_lock(lock: Mapping[str, Any]) -> dict[str, Any]:
    kept = {key: public_value(lock[key]) for key in _LOCKED if key in lock}
    parts = lock.get("components")
    if isinstance(parts, list):
        kept["components"] = [_public_lock(part) for part in parts if isinstance(part, Mapping)]
    return kept
