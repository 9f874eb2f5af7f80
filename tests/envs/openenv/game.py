"""A server of openenv itself with a small game; run it with a Python that has the package: PORT SESSIONS [tasks]."""

from __future__ import annotations

import random
import sys
from typing import Any

import uvicorn
from fastapi import FastAPI
from openenv.core.env_server.http_server import HTTPEnvServer
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State


class Guess(Action):
    text: str


class Seen(Observation):
    hint: str
    left: int = 0


class Game(Environment):
    """A number from 1 to 4, in three guesses."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed: int | None = None, episode_id: str | None = None, **_: Any) -> Seen:
        self.number, self.left = random.Random(seed).randint(1, 4), 3
        return Seen(hint="Guess a number from 1 to 4.", left=3)

    def step(self, action: Guess, **_: Any) -> Seen:
        if action.text == "boom":
            raise RuntimeError("it went boom")
        self.left -= 1
        won = action.text == str(self.number)
        return Seen(hint="Yes." if won else "No.", left=self.left, reward=float(won), done=won or not self.left)

    @property
    def state(self) -> State:
        return State()


class Tasks(Game):
    """The same with tasks: the number of a task is its index, from 1 to 4 and again."""

    def list_splits(self) -> list[str]:
        return ["train", "test"]

    def num_tasks(self, split: str) -> int:
        return {"train": 1200, "test": 3}[split]

    def get_task_range(self, split: str, start: int | None = None, stop: int | None = None) -> list[dict[str, Any]]:
        return [{"id": f"{split}-{index}", "number": index % 4 + 1} for index in range(start or 0, stop or 0)]

    def reset(
        self, seed: int | None = None, episode_id: str | None = None, split: str = "", index: int = 0, **_: Any
    ) -> Seen:
        super().reset(seed)
        self.number = index % 4 + 1
        return Seen(hint=f"Task {index} of {split}.", left=3)


app = FastAPI()
kind = Tasks if len(sys.argv) > 3 else Game
HTTPEnvServer(kind, Guess, Seen, max_concurrent_envs=int(sys.argv[2])).register_routes(app)
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="error")
