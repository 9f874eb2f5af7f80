"""Plays any gymnasium environment by text; a completion that names no action costs a turn and changes nothing."""

from __future__ import annotations

from typing import Any, Literal

import gymnasium

from grpo.envs.gym.actions import described_actions, read_action
from grpo.envs.gym.known import Known, reached
from grpo.envs.gym.text import drawn, shortened, written
from grpo.envs.text.text_env import TextEnv

Unreadable = Literal["again", "end"]


class TextGame(TextEnv):
    """Plays an environment by text; after an unreadable completion the policy tries "again", or the episode "end"s."""

    def __init__(
        self,
        inner: gymnasium.Env[Any, Any],
        known: Known,
        *,
        draws: bool,
        most_turns: int,
        unreadable: Unreadable,
        penalty: float,
    ) -> None:
        super().__init__()
        self._inner = inner
        self._known = known
        self._draws = draws
        self._most_turns = most_turns
        self._unreadable = unreadable
        self._penalty = penalty
        self._turns = self._missed = 0
        self._total = 0.0
        self._rewards: list[float] = []
        self._shown = ""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Starts an episode; `options` go to the environment, without `row`."""
        super().reset(seed=seed)
        given = {name: value for name, value in (options or {}).items() if name != "row"}
        observation, _ = self._inner.reset(seed=seed, options=given or None)
        self._turns = self._missed = 0
        self._total = 0.0
        self._rewards = []
        self._open = True
        self._shown = self._text(observation)
        how = f"{self._described_actions()} Answer with <action>one of them</action>."
        system = "\n".join(line for line in (self._known.rules, how) if line)
        messages = [{"role": "system", "content": system}, {"role": "user", "content": self._shown}]
        spec = self._inner.spec
        return self._shown, {"prompt": messages, "row": {"env_id": spec.id if spec else ""}}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        chosen = read_action(self._checked(action), self._inner.action_space, self._known.actions)
        self._turns += 1
        if chosen is None:
            self._missed += 1
            shown = f"That names no action. {self._described_actions()}\n{self._shown}"
            reward, ended, cut = self._penalty, self._unreadable == "end", False
            success: bool | None = False
        else:
            observation, given, ended, cut, _ = self._inner.step(chosen)
            reward, ended, cut = float(given), bool(ended), bool(cut)
            shown = self._shown = self._text(observation)
            self._rewards.append(reward)
            success = reached(self._known.goal, self._rewards, ended=ended, cut=cut)
        cut = cut or (self._turns >= self._most_turns and not ended)
        self._total += reward
        self._open = not (ended or cut)
        info: dict[str, Any] = {
            "scores": {"return": self._total, "unreadable": float(self._missed)},
            "success": success,
        }
        return shown, reward, ended, cut, info

    def close(self) -> None:
        self._inner.close()

    def _described_actions(self) -> str:
        return described_actions(self._inner.action_space, self._known.actions)

    def _text(self, observation: Any) -> str:
        if self._draws:
            return shortened(drawn(self._inner))
        return shortened(written(self._inner.unwrapped, observation, self._known.fields))
