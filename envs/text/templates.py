"""Defines prompt templates: the layout that a completion should have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from grpo.envs.text import TemplateName
from grpo.plugins._pattern import lazy_pattern
from grpo.plugins.errors import OptionError, did_you_mean

_FIELD = lazy_pattern(r"\{(reasoning|answer)\}")
_WORKING = "your working, step by step"
_NUMBER = "the final number"


@dataclass(frozen=True, slots=True)
class Template:
    """A layout for completions."""

    system: str  # the system message that asks for the layout; "" sends none
    pattern: str  # the completion with `{reasoning}` and `{answer}` in their places

    def render(self, reasoning: str, answer: str) -> str:
        """Returns a completion in this layout; the texts are put in as they are."""
        return _fill(self.pattern, {"reasoning": reasoning, "answer": answer})


def _fill(pattern: str, values: dict[str, str]) -> str:
    return _FIELD.sub(lambda match: values[match[1]], pattern)


def _asking_for(pattern: str, answer: str = _NUMBER) -> Template:
    return Template(
        "Answer in this form:\n" + _fill(pattern, {"reasoning": _WORKING, "answer": answer}).strip(), pattern
    )


TEMPLATES = {
    "reasoning": _asking_for("<reasoning>\n{reasoning}\n</reasoning>\n<answer>\n{answer}\n</answer>\n"),
    "solution": _asking_for("<start_working_out>{reasoning}<end_working_out><SOLUTION>{answer}</SOLUTION>"),
    "think": _asking_for("<think>\n{reasoning}\n</think>\n{answer}"),
    "hash": _asking_for("{reasoning}\n#### {answer}"),
}


def choose_template(
    name: str, *, system: str | None = None, pattern: str | None = None, answer: str = _NUMBER
) -> Template:
    """Returns the template that the options describe.

    `system`: a system message instead of the template's own; "" sends none. `pattern`: the layout of the template
    `custom`, with `{reasoning}` and `{answer}` once each. `answer`: what the system message says stands in the place of
    the answer. Raises OptionError: an unknown name, a bad or missing pattern, or one for a template that has its own.
    """
    if name not in get_args(TemplateName):
        names = get_args(TemplateName)
        raise OptionError(f"no template '{name}'.{did_you_mean(name, names)} Choose one of: {', '.join(names)}.")
    if name == "custom":
        if pattern is None:
            raise OptionError(
                "template=custom needs the option 'pattern': the completion with {reasoning} and {answer} in their "
                "places, as a JSON string when it has line ends or commas."
            )
        if sorted(_FIELD.findall(pattern)) != ["answer", "reasoning"]:
            raise OptionError(
                f"the pattern {pattern!r} must hold {{reasoning}} and {{answer}}, once each; add or remove the fields."
            )
        template = _asking_for(pattern, answer)
    elif pattern is not None:
        raise OptionError(f"the template '{name}' has its own pattern. Remove 'pattern', or set template=custom.")
    else:
        template = _asking_for(TEMPLATES[name].pattern, answer)
    return template if system is None else Template(system, template.pattern)
