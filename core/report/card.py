"""The card of a model: what a run recorded in, Markdown for its README out.

It says what was trained, on which rewards in which versions, with which result and alarms, and how to do it again.
Nothing that a policy wrote is in it, and no folder of the machine that trained.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from grpo.core.report.alarms import Alarm
from grpo.core.report.unnamed import without_folders
from grpo.core.text.printable import counted, one_line

HELD_OUT, LOW, HIGH = "held_out/accuracy", "held_out/accuracy_low", "held_out/accuracy_high"
SETTINGS_FILE = "run.json"
LONGEST = 10_000  # characters of a setting
KINDS = ("env", "reward", "verifier", "sampler", "loss", "advantage")
FORMS = {"adapter": ["The files are the adapter."], "merged": ["The adapter was added to the weights."], "model": []}
SETTINGS = (
    ("optimizer steps", "train.steps"),
    ("prompts a step", "train.prompts_per_step"),
    ("completions of a prompt", "train.group_size"),
    ("learning rate", "train.lr"),
    ("supervised steps before", "train.warmup_steps"),
    ("arithmetic", "train.dtype"),
    ("KL term (beta)", "loss.beta"),
    ("temperature", "rollout.temperature"),
    ("new tokens of a completion", "rollout.max_completion_length"),
    ("turns", "rollout.max_turns"),
    ("seed", "seed"),
)


@dataclass(frozen=True, slots=True)
class CardFacts:
    """What a card says.

    Attributes:
        name: of the model, for its title.
        base: the hub's name of the model that training began with; None where no hub has it.
        form: "adapter", "merged" or "model": what stands beside the card.
        step: after which the weights were saved.
        final: the run was over by then.
        config, versions: as the run wrote them.
        metrics: rows of metrics.jsonl.
        alarms: of the run.
        report: the name of the page beside the card, or None.
    """

    name: str
    base: str | None
    form: str
    step: int
    final: bool
    config: Mapping[str, Any]
    versions: Mapping[str, Any]
    metrics: Sequence[Mapping[str, Any]]
    alarms: Sequence[Alarm]
    report: str | None


def card_of(facts: CardFacts) -> str:
    """Returns the card."""
    from huggingface_hub import ModelCardData

    data = ModelCardData(
        base_model=facts.base,
        library_name="peft" if facts.form == "adapter" else "transformers",
        pipeline_tag="text-generation",
        tags=["grpo", "rlvr", "grpo-kit", *(["lora"] if facts.config["lora"]["enabled"] else [])],
    )
    return f"---\n{data.to_yaml()}\n---\n\n" + "\n".join(_body(facts)) + "\n"


def _body(facts: CardFacts) -> Iterator[str]:
    config, versions = without_folders(facts.config), without_folders(facts.versions)
    yield f"# {_plain(facts.name)}\n"
    began = f"[{facts.base}](https://huggingface.co/{facts.base})" if facts.base else _began(config)
    how = "a LoRA adapter" if config["lora"]["enabled"] else "all weights"
    over = "" if facts.final else f"; the run is not over, these are the weights after step {facts.step}"
    yield f"Trained with GRPO by `grpo-kit` {_version(versions)}: {how} of {began}{over}."
    yield {"adapter": "The files are the adapter.", "merged": "The adapter was added to the weights."}.get(
        facts.form, ""
    )
    yield "\n## Result\n"
    yield from _result(facts.metrics)
    yield from _alarms(facts)
    yield "\n## Trained on\n"
    yield "| kind | plugin | version | package | weight |\n|---|---|---|---|---|"
    yield from _plugins(versions.get("plugins", {}))
    yield "\n## Settings\n"
    yield "| setting | value |\n|---|---|"
    for words, name in SETTINGS:
        value = _at(config, name)
        if value is not None:
            yield f"| {words} | {_code(value)} |"
    if config["lora"]["enabled"]:
        yield f"| LoRA | {_code('rank {rank}, targets {targets}'.format(**config['lora']))} |"
    libraries = versions.get("libraries", {})
    yield "| libraries | " + _code(", ".join(f"{name} {version}" for name, version in libraries.items())) + " |"
    yield "\n## Again\n"
    yield f"    grpo run --config {SETTINGS_FILE}\n"
    yield f"`{SETTINGS_FILE}` has all settings, of files and folders without the place where they were."
    if facts.report is not None:
        yield f"\n`{facts.report}` is the whole run to look at, with its rollouts; it opens without a network."


def _began(config: Mapping[str, Any]) -> str:
    model = config.get("model")
    return "the demonstration model that ships with it" if model is None else f"{_code(model)}, a folder"


def _version(versions: Mapping[str, Any]) -> str:
    return str(versions.get("libraries", {}).get("grpo-kit", ""))


def _result(metrics: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    rows = [row for row in metrics if row.get(HELD_OUT) is not None]
    if rows:
        yield "| | held-out accuracy | 95% interval |\n|---|---|---|"
        for row in (rows[0], rows[-1]) if len(rows) > 1 else rows:
            yield f"| after {counted(row['step'], 'step')} | {row[HELD_OUT]:.1%} | {_interval(row)} |"
    else:
        yield "Held-out accuracy was not measured."
    trained = [row for row in metrics if row["step"] and row.get("reward") is not None]
    if trained:
        first, last = trained[0], trained[-1]
        yield f"\nMean reward: {first['reward']:.3g} in step {first['step']}, {last['reward']:.3g} in step {last['step']}."


def _interval(row: Mapping[str, Any]) -> str:
    low, high = row.get(LOW), row.get(HIGH)
    return "" if low is None or high is None else f"{low:.1%} to {high:.1%}"


def _alarms(facts: CardFacts) -> Iterator[str]:
    """Alarms quote what was rewarded, which a policy may have written: a card has their kinds alone."""
    if not facts.alarms:
        yield "\nThe run gave no alarm."
        return
    kinds: dict[str, list[int]] = {}
    for alarm in facts.alarms:
        kinds.setdefault(f"{alarm.kind}{f' of `{_plain(alarm.reward)}`' if alarm.reward else ''}", []).append(
            alarm.step
        )
    yield "\nThe run gave alarms; look at them before you trust the result:\n"
    for kind, steps in kinds.items():
        yield f"- {kind}: {counted(len(steps), 'time')}, first in step {min(steps)}"


def _plugins(locks: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    order = {kind: place for place, kind in enumerate(KINDS)}
    for one in sorted(locks.values(), key=lambda lock: order.get(lock["kind"], len(order))):
        options = {name: value for name, value in one.get("options", {}).items() if value is not None}
        spec = one["plugin"] + (f" {json.dumps(options, ensure_ascii=False)}" if options else "")
        package = f"{one['distribution']} {one['distribution_version']}".strip()
        weight = "" if one.get("weight") is None else f"{one['weight']:g}"
        yield f"| {one['kind']} | {_code(spec)} | {one['version']} | {_plain(package)} | {weight} |"


def _at(config: Mapping[str, Any], name: str) -> Any:
    found: Any = config
    for part in name.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _code(value: Any) -> str:
    """Inline code in a cell of a table."""
    text = one_line(value if isinstance(value, str) else json.dumps(value), LONGEST).replace("|", "\\|")
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def _plain(text: str) -> str:
    """Text that is neither markup nor the end of a cell."""
    found = one_line(text, LONGEST).replace("&", "&amp;").replace("<", "&lt;")
    for sign in "\\`*_[]|#":
        found = found.replace(sign, f"\\{sign}")
    return found
