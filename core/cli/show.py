"""Describes one plugin in full, for `grpo plugins show`."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Collection, Iterator

from grpo.plugins._host.names import clash_of, nearest, where_to_look
from grpo.plugins._spec.options import type_name
from grpo.plugins._spec.spec_text import is_file, parse
from grpo.plugins.errors import AmbiguousName, PluginNotFound, UsageError, with_article
from grpo.plugins.host import Host, Registration
from grpo.plugins.rubric import RubricSpec, terms
from grpo.plugins.specs import (
    KINDS,
    AdvantageSpec,
    AgentSpec,
    EnvSpec,
    Kind,
    LossSpec,
    RewardSpec,
    SandboxSpec,
    SessionSpec,
    VerifierSpec,
)
from grpo.plugins.types import Case

_ISOLATION = {
    "process": "in a process of its own, which is killed when its time is up",
    "thread": "in a thread",
    "inline": "in the caller",
}
_COMMANDS = {
    "reward": "run --reward",
    "verifier": "verify --verifier",
    "env": "run --env",
    "loss": "run --loss",
    "advantage": "run --advantage",
    "sampler": "run --sampler",
    "agent": "run --agent",
}
_ANSWERS = {True: "the policy's last message", False: "what it returns, or else the policy's last message"}
_AVERAGES = {
    "batch": "all tokens of the batch",
    "completion": "the tokens of each completion, then completions",
    "micro_batch": "the tokens of a micro batch",
    "constant": "completions times the longest one that may be sampled",
    "sum": "completions, their tokens summed up",
}
_COMBINES = {"sum": "weighted sum", "all": "all (1 when each passes)", "any": "any (1 when one passes)"}


def hits_of(host: Host, name: str) -> tuple[list[Registration], dict[Kind, UsageError]]:
    """Returns the plugins of all kinds that a name stands for, and the errors of the other kinds.

    A plain function of a file counts only as the kind that the file offers it as. Raises AmbiguousName if several
    distributions have the name, or a file offers several plugins of one kind.
    """
    hits: list[Registration] = []
    misses: dict[Kind, UsageError] = {}
    for kind in KINDS:
        try:
            hit = host.find(kind, name)
        except AmbiguousName:
            raise
        except UsageError as error:
            misses[kind] = error
            continue
        if all(_function_of(hit) is not _function_of(other) for other in hits):
            hits.append(hit)
    return hits, misses


def _function_of(known: Registration) -> object:
    return getattr(known.spec, "function", known.spec)


def find_plugin(host: Host, name: str) -> Registration:
    """Returns the plugin of `[kind:][dist/]name` or `./file.py:function`. Raises PluginNotFound, AmbiguousName."""
    prefix, colon, rest = name.partition(":")
    if colon and prefix in KINDS:
        return host.find(prefix, rest)
    hits, misses = hits_of(host, name)
    if len(hits) > 1:
        kinds = " and ".join(with_article(hit.kind) for hit in hits)
        choices = " or ".join(f"grpo plugins show {hit.kind}:{name}" for hit in hits)
        raise AmbiguousName(f"'{name}' is {kinds}. Write {choices}.")
    if hits:
        return hits[0]
    first = misses["reward"]
    if is_file(name) or not isinstance(first, PluginNotFound):
        raise first
    bare = parse(name).name
    for known in host.registrations():
        if known.spec.name == bare:  # the name is right; the version or the distribution is not
            raise misses[known.kind]
    broken = [problem for problem in host.problems if name in (problem.distribution, problem.entry_point)]
    if broken:
        lines = "; ".join(problem.line for problem in broken)
        raise PluginNotFound(f"no plugin '{name}', but an installed package of that name is broken: {lines}")
    names = [known.spec.name for known in host.registrations()]
    raise PluginNotFound(f"no plugin '{name}'.{nearest(name, names)} {where_to_look(host.problems)}")


def described(host: Host, known: Registration) -> Iterator[str]:
    from pydantic_core import to_jsonable_python

    spec = known.spec
    yield f"{known.kind} {spec.name}, {f'version {spec.version}' if spec.version else 'known by its source'}"
    if known.distribution_version:
        yield f"from {known.distribution} {known.distribution_version}, entry point '{known.entry_point}'"
    else:
        yield f"from {known.distribution}"
    clash = clash_of(host.problems, known)
    if clash:
        yield f"note: {clash.line}"
    doc, texts = _without_options(spec.doc, {option.name for option in spec.options})
    yield from ["", *(doc or "(no documentation)").splitlines(), ""]
    yield "Options:" if spec.options else "Options: none"
    width = max((len(option.name) for option in spec.options), default=0)
    for option in spec.options:
        default = "required" if option.required else f"default {to_jsonable_python(option.default, fallback=repr)!r}"
        text = texts.get(option.name)
        yield f"  {option.name.ljust(width)}  {type_name(option.type)}, {default}{f': {text}' if text else ''}"
    if isinstance(spec, (RewardSpec, VerifierSpec)):
        yield from _function_lines(spec)
    elif isinstance(spec, EnvSpec):
        yield from _env_lines(spec)
    elif isinstance(spec, LossSpec):
        yield f"Averaged over: {_AVERAGES[spec.average]}"
        if spec.entropies != "none":
            yield f"Reads entropies{' with their gradient' if spec.entropies == 'gradient' else ''}"
    elif isinstance(spec, AdvantageSpec):
        yield f"Unbiased: {'yes, up to a factor' if spec.unbiased else 'not claimed'}"
    elif isinstance(spec, AgentSpec):
        yield from _agent_lines(spec)
    yield f"Use: {_use(known)}"


def _without_options(doc: str, options: Collection[str]) -> tuple[str, dict[str, str]]:
    """Returns a documentation without what its section `Args` says of options, and that by their names."""
    head, section, rest = doc.partition("\nArgs:\n")
    if not section:
        return doc, {}
    args, blank, after = rest.partition("\n\n")
    kept: list[str] = []
    texts: dict[str, str] = {}
    for entry in re.split(r"\n(?=    \S)", args):
        name, _, text = entry.strip().partition(":")
        if name in options:
            texts[name] = " ".join(text.split()).rstrip(".")
        else:
            kept.append(entry)
    section = section + "\n".join(kept) if kept else ""
    return f"{head}{section}{blank}{after}".rstrip(), texts


def _function_lines(spec: RewardSpec | VerifierSpec) -> Iterator[str]:
    columns = [str(column) if column.required else f"{column} (optional)" for column in spec.columns]
    columns += ["any other (**kwargs)"] if spec.rest else []
    yield f"Columns: {', '.join(columns) or 'none'}"
    if isinstance(spec, RewardSpec):
        low, high = (f"{bound:g}" if math.isfinite(bound) else "unbounded" for bound in spec.range)
        yield f"Range: {low} to {high}" if (low, high) != ("unbounded", "unbounded") else "Range: unbounded"
    if isinstance(spec, RubricSpec):
        yield f"Combines by: {_COMBINES[spec.combine]}"
        yield from _component_lines(spec, "  ")
    else:
        grouped = isinstance(spec, RewardSpec) and spec.scope == "group"
        calls = "the completions of one prompt" if grouped else "a whole batch" if spec.batch else "one completion"
        kind = ", async" if inspect.iscoroutinefunction(spec.function) else ""
        yield f"Runs: {_ISOLATION[spec.isolation]}; {calls} a call{kind}; timeout {spec.timeout:g} s"
    yield f"Cases: {len(spec.cases) or 'none'}"
    for case in spec.cases:
        yield f"  {_case_line(case)}"


def _component_lines(spec: RubricSpec, indent: str) -> Iterator[str]:
    for component, term in zip(spec.components, terms(spec), strict=True):
        facts = [f"weight {component.weight:g}"] if spec.combine == "sum" else []
        if component.gate or spec.combine != "sum":
            facts.append(f"{'a gate that ' if component.gate else ''}passes from {term.passes:g}")
        inner = component.spec
        nested = inner if isinstance(inner, RubricSpec) else None
        what = f"a rubric that combines by {_COMBINES[nested.combine]}" if nested else inner.name
        yield f"{indent}{component.name}: {what}, {', '.join(facts)}"
        if nested:
            yield from _component_lines(nested, f"{indent}  ")


def _case_line(case: Case) -> str:
    texts = list(case.texts) if case.several else case.completion
    given = [repr(texts), *(f"{name}={value!r}" for name, value in {**case.row, **case.options}.items())]
    return f"{', '.join(given)} -> {_expected(case)}"


def _expected(case: Case) -> str:
    texts = ["abstains" if expect is None else str(expect) for expect in case.expected]
    return f"[{', '.join(texts)}]" if case.several else texts[0]


def _env_lines(spec: EnvSpec) -> Iterator[str]:
    if spec.settle is not None:
        yield "Rewards and verifier: what fits its rows"
    else:
        yield f"Rewards: {', '.join(spec.rewards) or 'none of its own; name some with --reward'}"
        yield f"Verifier: {spec.verifier or 'none'}"
    yield f"Turns: {spec.max_turns}"
    yield f"Rows: {'it makes its own episodes' if spec.dataset is None else 'a dataset'}"
    if spec.hub_dataset:
        yield f"Dataset with a model of your own: {spec.hub_dataset}"


def _agent_lines(spec: AgentSpec) -> Iterator[str]:
    yield f"Runs: {'a program of its own' if spec.command else 'in Python, in a process of its own for each episode'}"
    yield f"APIs: {', '.join(spec.protocols)}"
    yield f"Needs: {', '.join([*spec.programs, *spec.modules]) or 'nothing that is known beforehand'}"
    yield f"Answer: {'what it writes to stdout' if spec.answer == 'stdout' else _ANSWERS[spec.command]}"


def _use(known: Registration) -> str:
    name = known.spec.name
    if known.distribution.endswith(".toml"):
        name = known.distribution
    elif not known.distribution_version:
        name = f"{known.distribution}:{name}"
    if isinstance(known.spec, SandboxSpec | SessionSpec):
        return name
    command = _COMMANDS[known.kind]
    if isinstance(known.spec, EnvSpec) and known.spec.resolve is not None:
        return f"grpo {command} {name}:NAME"
    settings = [option for option in known.spec.options if option.required] or known.spec.options[:1]
    example = ",".join(f"{option.name}=..." for option in settings)
    return f"grpo {command} {name}{':' if example else ''}{example}"
