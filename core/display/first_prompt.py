"""Shows the first prompt of a run exactly as the model reads it, or the first task as an agent gets it."""

from __future__ import annotations

from grpo.core.agents.program import task_of
from grpo.core.env.prompts import encode_episodes, special_tokens
from grpo.core.plan import Plan
from grpo.core.text.printable import printable

LINES, WIDTH = 24, 600  # what is shown of a long one: lines from its beginning and its end, characters of each


def first_prompt(plan: Plan) -> tuple[str, str] | None:
    """Returns a title and the first prompt of the first environment; None where there are no rows or no tokenizer."""
    episodes = next((part.train for part in plan.envs if part.train), ())
    if not episodes or plan.tokenizer is None:
        return None
    if plan.agent is not None:
        task = task_of(episodes[0])
        given = [*([task.system, ""] if task.system else []), task.instruction]
        title = "the first task, as the agent gets it (the agent writes the model's prompt itself)"
        return title, _shown("\n".join(given))
    (ids,) = encode_episodes(plan.tokenizer, episodes[:1])
    text = plan.tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
    title = f"the first prompt, {len(ids)} tokens, as the model reads it"
    written = str(episodes[0].prompt)
    if spelt := [token for token in special_tokens(plan.tokenizer) if token in written]:
        title += f" ({' and '.join(spelt)}, where a message spells {'it' if len(spelt) == 1 else 'them'} out, is text)"
    return title, _shown(text)


def _shown(text: str) -> str:
    lines = [_cut(line) for line in printable(text).split("\n")]
    half = LINES // 2
    if len(lines) > LINES:
        lines = [*lines[:half], f"... {len(lines) - 2 * half} more lines ...", *lines[-half:]]
    return "\n".join(lines)


def _cut(line: str) -> str:
    over = len(line) - WIDTH
    return line if over <= 0 else f"{line[: WIDTH // 2]} ... {over} more characters ... {line[-WIDTH // 2 :]}"
