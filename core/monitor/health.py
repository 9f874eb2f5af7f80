"""Warns of the ways in which GRPO fails silently, each at most once, with what to try."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from grpo.core.monitor.trends import GAIN, RISE, SOLVED, WINDOW, Course, Trends
from grpo.core.record.agent_calls import agent_of
from grpo.core.text.stats import mean
from grpo.plugins.types import Completion

HEALTH = "the health check"
FIRST_STEPS = WINDOW  # look for broken output in these
STREAK = 5  # steps in a row before a flat reward counts
REACH = 0.02  # a mean accuracy of the first steps below this leaves hardly anything to reinforce
EMPTY_SHARE = 0.5
REPEATED_SHARE = 0.5
UNENDED_SHARE = 0.9
LOOP_WORDS = 40  # shorter texts repeat themselves for good reasons
LOOP_DISTINCT = 0.3  # distinct 4-grams among all 4-grams of a text that loops
UNENDED = {
    "episodes": "episodes of step {step} used up their calls or tokens, or their last answer was cut off. Raise "
    "rollout.max_turns, rollout.max_rollout_length or rollout.max_completion_length, or read the calls with "
    "`grpo show`.",
    "rollouts": "rollouts of step {step} were ended by a budget, not by their environment. Raise rollout.max_turns or "
    "rollout.max_completion_length, or read the turns with `grpo show`.",
    "answers": "completions of step {step} hit the length limit without ending. Raise rollout.max_completion_length, "
    "or check that the chat template and the end token agree.",
}
AGENT_ENDS = {
    "agent/timed_out": "ran out of time, and are judged as they stand. Raise rollout.agent_seconds, or see with "
    "`grpo show` what the agent waits for.",
    "agent/exits": "ended with an exit status other than 0, and are judged as they stand. `grpo show` prints what the "
    "agent wrote to its standard error.",
}
LOGP_DIFFERENCE = {"float32": 0.01, "bfloat16": 1.0, "float16": 0.5}  # nats; rounding explains less than this


class HealthWatch:
    """Remembers what it saw and which warnings it gave."""

    def __init__(self, dtype: str) -> None:
        self._difference_limit = LOGP_DIFFERENCE[dtype]
        self._given: set[str] = set()
        self._trends = Trends()
        self._zero_steps = 0
        self._flat_steps = 0
        self._abstained_steps: dict[str, int] = {}
        self._rewards = Course()
        self._accuracies = Course()

    def batch(self, step: int, completions: Sequence[Completion], totals: Sequence[float | None]) -> list[str]:
        """Checks the texts and totals of one generation without failed rollouts; returns new warnings."""
        pairs = [(c, total) for c, total in zip(completions, totals, strict=True) if c.finish_reason != "error"]
        if not pairs:
            return []
        completions, totals = [c for c, _ in pairs], [total for _, total in pairs]
        warnings: list[str] = []
        count = len(completions)
        if step <= FIRST_STEPS:
            empty = sum(not c.text.strip() and not c.info.get("tool_calls") for c in completions) / count
            looping = sum(loops(c.text) for c in completions) / count
            records = [agent_of(c.info) for c in completions]
            late = sum(bool(record and record.timed_out) for record in records)
            unended = (sum(c.finish_reason == "length" for c in completions) - late) / count
            if empty > EMPTY_SHARE:
                warnings += self._once(
                    "empty",
                    f"{empty:.0%} of the completions of step {step} are empty. The chat template may end the answer "
                    "at once. Try the prompt with `grpo generate`, another template, or --warmup-steps.",
                )
            if looping > REPEATED_SHARE:
                warnings += self._once(
                    "looping",
                    f"{looping:.0%} of the completions of step {step} repeat themselves. Check that the model is the "
                    "instruction-tuned one, lower the temperature, or teach the format with --warmup-steps.",
                )
            if unended > UNENDED_SHARE:
                several = any(c.turns > 1 for c in completions)
                kind = "episodes" if any(records) else "rollouts" if several else "answers"
                warnings += self._once("unended", f"{unended:.0%} of the {UNENDED[kind].format(step=step)}")
        if all(total is None for total in totals):
            warnings += self._once(
                "unscored",
                f"no completion of step {step} has a reward, because every reward abstained or failed. Nothing is "
                "learned. Look at them with `grpo show`, and check when a reward returns None.",
            )
        self._zero_steps = self._zero_steps + 1 if all(total == 0 for total in totals) else 0
        if self._zero_steps >= STREAK:
            warnings += self._once(
                "zero",
                f"every reward was exactly 0 for {STREAK} steps. Score a few completions with `grpo score`, and "
                "compare the format that the reward expects with a sample in `grpo show`.",
            )
        return warnings

    def metrics(self, row: Mapping[str, float | int | None]) -> list[str]:
        """Checks the metrics of one step; returns new warnings."""
        warnings: list[str] = []
        step = row["step"]
        flat = row.get("frac_reward_zero_std")
        if flat is not None:
            self._flat_steps = self._flat_steps + 1 if flat == 1.0 else 0
        if self._flat_steps >= STREAK:
            warnings += self._once(
                "flat",
                f"no group had two different rewards for {STREAK} steps, up to step {step}, so nothing is learned. The "
                "task may be solved or too hard. Change its level, raise train.group_size or the temperature, use a "
                "reward with partial credit, replace such groups with --dynamic 2, or skip such rows with "
                "--sampler curriculum.",
            )
        for name, ended in AGENT_ENDS.items():
            if (row.get(name) or 0.0) > UNENDED_SHARE:
                warnings += self._once(name, f"{row[name]:.0%} of the episodes of step {step} {ended}")
        trained, untrained = ((row.get(f"agent/tokens_{kind}") or 0.0) for kind in ("trained", "untrained"))
        if untrained > trained:
            warnings += self._once(
                "untrained",
                f"{untrained / (trained + untrained):.0%} of the tokens that the policy wrote in step {step} do not "
                "train. `grpo show` says of each call why; --set rollout.agent_trains=all trains auxiliary calls, "
                "which are those without tools unless the agent's plugin names others.",
            )
        warnings += self._abstaining(row)
        difference = row.get("sampling/sampling_logp_difference/max")
        if difference is not None and difference > self._difference_limit:
            warnings += self._once(
                "difference",
                f"sampling and training disagree by up to {difference:.3g} nats per token in step {step}, so the "
                "policy that trains is not the one that sampled. Try train.dtype='float32' to see whether rounding "
                "explains it, and lora.dropout=0.",
            )
        reward, accuracy = row.get("reward"), row.get("accuracy")
        if reward is not None and accuracy is not None:
            self._rewards.add(reward)
            self._accuracies.add(accuracy)
            warnings += self._out_of_reach() + self._diverging(int(step or 0))
        for key, warning in self._trends.look(row):
            warnings += self._once(key, warning)
        return warnings

    def _abstaining(self, row: Mapping[str, float | int | None]) -> list[str]:
        warnings: list[str] = []
        for key, share in row.items():
            if share is None or not key.startswith("rewards/") or not key.endswith("/abstain"):
                continue
            steps = self._abstained_steps[key] = self._abstained_steps.get(key, 0) + 1 if share == 1.0 else 0
            if steps >= STREAK:
                name = key.removeprefix("rewards/").removesuffix("/abstain")
                warnings += self._once(
                    key,
                    f"reward '{name}' abstained on every completion for {STREAK} steps, up to step {row['step']}, so "
                    "it counts for nothing. `grpo show` prints the reward's reason if it gives one.",
                )
        return warnings

    def _out_of_reach(self) -> list[str]:
        share = mean(self._accuracies.first)
        if self._accuracies.count != FIRST_STEPS or share >= REACH:
            return []
        return self._once(
            "reach",
            f"{share:.1%} of the answers of the first {FIRST_STEPS} steps were correct. GRPO reinforces answers that a "
            "policy sometimes gives and rarely finds new ones. Use easier problems, a stronger model, or "
            "--warmup-steps first.",
        )

    def _diverging(self, step: int) -> list[str]:
        rewards, accuracies = self._rewards.windows(), self._accuracies.windows()
        if rewards is None or accuracies is None:
            return []
        (before, after), (was, now) = rewards, accuracies
        spread = self._rewards.highest - self._rewards.lowest
        if after - before > RISE * spread and now - was < GAIN and now < SOLVED:
            return self._once(
                "diverging",
                f"the reward rose from {before:.3g} to {after:.3g} by step {step} while accuracy went from {was:.0%} "
                f"to {now:.0%}: the reward pays for something else than correct answers. Look at wrong completions "
                "with high rewards. If the format pays them, lower its weight or use --warmup-steps.",
            )
        return []

    def _once(self, key: str, warning: str) -> list[str]:
        if key in self._given:
            return []
        self._given.add(key)
        return [warning]


def loops(text: str) -> bool:
    """Returns whether a long text consists mostly of the same four-word runs."""
    words = text.split()
    if len(words) < LOOP_WORDS:
        return False
    runs = [tuple(words[i : i + 4]) for i in range(len(words) - 3)]
    return len(set(runs)) / len(runs) < LOOP_DISTINCT
