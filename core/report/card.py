"""Writes the model card of a run: what was trained, with which plugins and result, and which alarms it raised.

No text of a policy is in it; names of plugins and users stand in code spans, where no markup works.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from grpo.core.policy.load import HUB_ID
from grpo.core.record.list import list_runs
from grpo.core.record.run_dir import RunDir, read_json, read_metrics
from grpo.core.report.alarms import Alarm, AlarmWatch, is_steady
from grpo.core.report.public import public_text, public_versions
from grpo.core.report.scan import recorded_steps
from grpo.core.report.summary import LARGEST, arithmetic_of
from grpo.core.text.printable import counted, one_line
from grpo.plugins.errors import UsageError

CONFIG_FILE = "grpo_config.json"
REPORT_FILE = "report.html"
MOST_ALARMS = 20
LONGEST = 300  # characters of anything that a run says
SETTINGS = {
    "train": ("lr", "lr_schedule", "prompts_per_step", "group_size", "dtype", "warmup_steps"),
    "loss": ("type", "advantage", "beta"),
    "rollout": ("temperature", "max_completion_length", "max_turns"),
    "lora": ("rank", "alpha", "targets", "bits"),
}
# Words of ours; the text of the others quotes what a policy wrote or what a plugin raised.
UNQUOTED = ("health", "canary", "state")


@dataclass(frozen=True, slots=True)
class Contents:
    """What a folder of the hub holds beside the card."""

    model: str | None  # "adapter", "merged" (an adapter that was added to its base), "full", or None for no model
    base: str | None  # the hub id of the model that training began with, or None where nobody else has it
    embedded: bool  # it began with the model that ships with the package
    report: bool  # the report is in it


def card_of(run: RunDir, contents: Contents) -> str:
    """Writes the card of a run. `run`: it need not be over. Raises UsageError if a file of the run was damaged."""
    [line] = list_runs(run.path)
    if line.problem is not None:
        raise UsageError(line.problem)
    config, metrics = read_json(run.config), read_metrics(run)
    versions = public_versions(read_json(run.versions))
    watch = AlarmWatch(arithmetic_of(config), metrics, is_steady(read_json(run.versions)))
    for step, rows in recorded_steps(run):
        watch.rollouts(step, rows)
    plugins = list(versions["plugins"].values())
    blocks = [
        *_front_matter(contents, plugins, adapted=bool(_section(config, "lora").get("enabled"))),
        "# A model trained by GRPO",
        _opening(contents, config, line.step, line.steps, line.status),
        "## Result",
        *_result(metrics),
        "## Trained with",
        *_table(("kind", "name", "version", "weight", "distribution"), _plugin_rows(plugins)),
        *_table(("setting", "value"), _setting_rows(config)),
        "## What rang",
        *_alarms(watch.alarms(line), report=contents.report),
        "## The same again",
        *_again(contents, plugins, versions["libraries"]),
    ]
    return "\n\n".join(blocks) + "\n"


def _front_matter(contents: Contents, plugins: Sequence[Mapping[str, Any]], *, adapted: bool) -> Iterator[str]:
    """Yields the metadata; each value is JSON, which is YAML too, so nothing in it can begin another key."""
    adapter = contents.model == "adapter"
    fields: dict[str, Any] = {"library_name": "peft" if adapter else "transformers", "pipeline_tag": "text-generation"}
    if contents.base is not None:
        fields |= {"base_model": contents.base, "base_model_relation": "adapter" if adapter else "finetune"}
    if known := sorted({name for plugin in plugins if (name := _dataset(plugin)) is not None}):
        fields["datasets"] = known
    fields["tags"] = ["grpo", "grpo-kit", "reinforcement-learning", "rlvr", *(["lora"] if adapted else [])]
    yield "\n".join(["---", *(f"{key}: {json.dumps(value)}" for key, value in fields.items()), "---"])


def _dataset(plugin: Mapping[str, Any]) -> str | None:
    name = _section(plugin, "options").get("dataset")
    if plugin.get("kind") != "env" or not isinstance(name, str) or "/" not in name or not HUB_ID.fullmatch(name):
        return None
    return None if name.endswith((".json", ".jsonl", ".parquet", ".csv")) else name


def _opening(contents: Contents, config: Mapping[str, Any], step: int, steps: int | None, status: str) -> str:
    what = {
        "adapter": "This is a LoRA adapter.",
        "merged": "This is a whole model: a LoRA adapter was added to its base, which is not on the hub.",
        "full": "This is a whole model, all of whose weights were trained.",
        None: "Here are the record and the settings of a run, without its weights.",
    }[contents.model]
    began = code(contents.base) if contents.base else "a model that is not on the hub"
    base = f"It began with {'the demonstration model of grpo-kit' if contents.embedded else began}."
    of = f" of {steps}" if _whole(steps) not in (None, step) else ""
    over = "" if status == "done" else f" The run is not over: {status}."
    return (
        f"{what} {base} It was trained for {counted(step, 'step')}{of}, seed {_whole(config.get('seed')) or 0}.{over}"
    )


def _whole(value: Any) -> int | None:
    """Returns a whole number as it is; None for anything else, which could be markup."""
    return value if type(value) is int and abs(value) <= LARGEST else None


def _count(value: Any) -> int | None:
    return _whole(int(value) if type(value) is float and value.is_integer() else value)


def _section(values: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = values.get(name)
    return section if isinstance(section, Mapping) else {}


def _result(metrics: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    measured = [row for row in metrics if row.get("held_out/accuracy") is not None]
    if not measured:
        yield "Held-out accuracy was not measured."
        return
    ends = measured if len(measured) == 1 else [measured[0], measured[-1]]
    rows = [(f"after {counted(int(row['step']), 'step')}", _share(row), _interval(row), _problems(row)) for row in ends]
    yield from _table(("held-out rows", "accuracy", "95% interval", "problems"), rows)
    rewards = [row for row in metrics if row.get("reward") is not None]
    if rewards:
        first, last = rewards[0], rewards[-1]
        yield (
            f"Mean reward in training: {first['reward']:.3g} in step {int(first['step'])}, "
            f"{last['reward']:.3g} in step {int(last['step'])}."
        )


def _share(row: Mapping[str, Any]) -> str:
    return f"{row['held_out/accuracy']:.1%}"


def _interval(row: Mapping[str, Any]) -> str:
    low, high = row.get("held_out/accuracy_low"), row.get("held_out/accuracy_high")
    return "" if low is None or high is None else f"{low:.1%} to {high:.1%}"


def _problems(row: Mapping[str, Any]) -> str:
    """Returns how many problems were judged, and how many different ones: the interval counts these."""
    problems, different = (_count(row.get(f"held_out/{what}")) for what in ("problems", "questions"))
    if problems is None:
        return ""
    return f"{problems}" if different in (None, problems) else f"{problems}, {different} different"


def _plugin_rows(plugins: Sequence[Mapping[str, Any]]) -> Iterator[Sequence[str]]:
    for plugin in plugins:
        weight = "" if plugin.get("weight") is None else code(plugin["weight"])
        yield _plugin_row(plugin, weight)
        for part in plugin.get("components") or ():
            yield _plugin_row(part, f"{code(part.get('weight'))} inside {code(plugin.get('name'))}")


def _plugin_row(plugin: Mapping[str, Any], weight: str) -> Sequence[str]:
    distribution = f"{plugin.get('distribution') or ''} {plugin.get('distribution_version') or ''}"
    return (
        code(plugin.get("kind")),
        code(plugin.get("name")),
        "" if plugin.get("version") is None else code(plugin["version"]),
        weight,
        code(distribution),
    )


def _setting_rows(config: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    for section, names in SETTINGS.items():
        values = _section(config, section)
        for name in names if section != "lora" or values.get("enabled") else ():
            if (value := values.get(name)) is not None:
                yield code(f"{section}.{name}"), code(f"{value:.6g}" if isinstance(value, float) else value)


def _alarms(alarms: Sequence[Alarm], *, report: bool) -> Iterator[str]:
    if not alarms:
        yield "No alarm and no canary."
        return
    yield from _table(
        ("step", "kind", "what"), [(str(alarm.step), alarm.kind, _alarm_text(alarm)) for alarm in alarms[:MOST_ALARMS]]
    )
    if len(alarms) > MOST_ALARMS:
        yield f"And {len(alarms) - MOST_ALARMS} more."
    if report:
        yield f"The evidence is in {code(REPORT_FILE)}."


def _alarm_text(alarm: Alarm) -> str:
    if alarm.kind in UNQUOTED:
        return code(alarm.text)
    if alarm.kind == "failure":
        return f"{code(alarm.reward)} failed on rollouts"
    return "signs that the reward is exploited"


def _again(contents: Contents, plugins: Sequence[Mapping[str, Any]], libraries: Mapping[str, Any]) -> Iterator[str]:
    version = "".join(letter for letter in str(libraries.get("grpo-kit", "")) if letter.isalnum() or letter in ".+-")
    pinned = f"grpo-kit=={version}" if version else "grpo-kit"
    yield f"    pip install {pinned}\n    grpo run --config {CONFIG_FILE}"
    others = {str(plugin.get("distribution") or "") for plugin in plugins} - {"", "grpo-kit"}
    notes = [f"Install or write these, too: {', '.join(map(code, sorted(others)))}."] if others else []
    if contents.base is None and not contents.embedded:
        notes.append("The model that it began with is not on the hub: name yours with `--model`.")
    notes.append("Files stand in the settings without their folders, and where the run stood is left out.")
    yield " ".join(notes)
    yield from _table(("library", "version"), [(code(name), code(version)) for name, version in libraries.items()])


def _table(head: Sequence[str], rows: Iterator[Sequence[str]] | Sequence[Sequence[str]]) -> Iterator[str]:
    lines = [f"| {' | '.join(cells)} |" for cells in rows]
    if lines:
        yield "\n".join([f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *lines])


def code(value: Any) -> str:
    """Returns a value as a code span of one line, in a table too: nothing in it is markup, a link or unseen."""
    text = one_line(public_text(value if isinstance(value, str) else json.dumps(value, default=str)), LONGEST)
    text = "".join(letter for letter in text if unicodedata.category(letter) not in ("Cf", "Cc", "Co", "Cs"))
    # Some readers find a tag or the bar of a table before they find a code span.
    for sign, other in (("`", "'"), ("|", "/"), ("<", "("), (">", ")")):
        text = text.replace(sign, other)
    return f"`{text.strip()}`" if text.strip() else ""
