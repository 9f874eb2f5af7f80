"""A server of openenv-core itself with a small game; run it with a Python that has the package: PORT SESSIONS."""

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


app = FastAPI()
HTTPEnvServer(Game, Guess, Seen, max_concurrent_envs=int(sys.argv[2])).register_routes(app)
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="error")
