"""Takes out of a record what belongs to one machine or one person: any value of JSON in, one for strangers out.

Folders go and the names of files stay; of an address the scheme and the host stay; values of options that are named
like secrets go. It is no filter of what rollouts say: a policy may have written anything.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

HIDDEN = "(left out)"
_SECRET = r"(?:api_?key|access_?key|token|secret|password|passwd|credentials?|authorization)"
_SECRET_OPTION = re.compile(rf"(?i)\b(?!eos_)(\w*{_SECRET}\s*=\s*)(?!{re.escape(HIDDEN)})[^\s,]+")
_SECRET_NAME = re.compile(rf"(?i)^(?!eos_)(?:\w*_)?{_SECRET}$")
_KNOWN_SECRET = re.compile(r"\b(?:hf_|sk-|ghp_|github_pat_)[A-Za-z0-9_-]{16,}")
_ADDRESS = re.compile(r"\b([a-z][a-z0-9+.-]*://)(?:[^\s/@,'\"]*@)?([^\s/,'\"?#@]*)[^\s,'\"]*", re.IGNORECASE)
# From a root, a home or a dot to the last slash of a path; not in the middle of a word, as the slash of a hub id is.
_FOLDER = re.compile(r"(?<![\w/.~-])(?:~[\w.-]*|\.{1,2})?/(?:[^\s/,:;='\"()<>|]+/)*(?=[^\s/,:;='\"()<>|])")
# Keys of a configuration that say where a run stood, and who watched it.
_PLACES = {"out", "server_url", "report_to", "project", "run_name", "run_group", "tags"}


def public_text(text: str) -> str:
    """Returns the text without folders, secrets and the private parts of addresses."""
    kept: list[str] = []

    def address(found: re.Match[str]) -> str:
        kept.append(found[1] + found[2])
        return f"\0{len(kept) - 1}\0"

    text = _KNOWN_SECRET.sub(HIDDEN, text.replace("\0", ""))
    text = _SECRET_OPTION.sub(rf"\1{HIDDEN}", text)
    text = _FOLDER.sub("", _ADDRESS.sub(address, text))
    return re.sub(r"\0(\d+)\0", lambda found: kept[int(found[1])], text)


def public_value(value: Any) -> Any:
    """Returns a value of JSON with every text in it, and every key, made public."""
    if isinstance(value, str):
        return public_text(value)
    if isinstance(value, Mapping):
        return {
            public_text(str(key)): HIDDEN if one and _SECRET_NAME.search(str(key)) else public_value(one)
            for key, one in value.items()
        }
    return [public_value(one) for one in value] if isinstance(value, (list, tuple)) else value


def public_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a recorded rollout whose reasons of failures are public; what it asked and answered stays as it was."""
    shown = {**row, **{key: public_value(value) for key, value in row.items() if key.startswith("reason.")}}
    try:
        info = json.loads(row["info"] or "null")
    except ValueError:
        return shown
    if isinstance(info, dict) and "failure" in info:
        shown["info"] = json.dumps({**info, "failure": public_value(info["failure"])})
    return shown


def public_config(config: Mapping[str, Any], model: str | None) -> dict[str, Any]:
    """Returns the settings of a run as `grpo run --config` reads them elsewhere.

    Args:
        config: as the run wrote them.
        model: the model that it began with, as others can name it; None for the one that ships with the package.
    """
    kept = {key: value for key, value in config.items() if key not in _PLACES and key != "model"}
    for name, section in kept.items():
        if name not in ("env", "env_rewards") and isinstance(section, Mapping):
            kept[name] = {key: value for key, value in section.items() if key not in _PLACES}
    shown: dict[str, Any] = public_value(kept)
    return {**shown, "model": model}
