"""Run in an environment that has verifiers: the environment `verifiers:colours-taskset`, played; "sound" on stdout."""

from __future__ import annotations

import os

import pytest
from gymnasium.utils.env_checker import check_env

from grpo.plugins.errors import OptionError, PluginNotFound
from grpo.plugins.host import Host

host = Host.discover()
bound = host.env("verifiers:colours-taskset:count=30")
rows = {split: bound.rows(split) or [] for split in ("train", "test")}
assert [len(rows[split]) for split in ("train", "test")] == [27, 3]
env = bound.make()
check_env(env, skip_render_check=True)
_, info = env.reset(options={"row": rows["train"][4]})
assert info["prompt"] == [
    {"role": "system", "content": "Be short."},
    {"role": "user", "content": "Name colour 4: green."},
]
assert (info["row"]["answer"], info["row"]["task"]) == ("green", 4)
_, reward, ended, _, info = env.step("It is green.")
assert (round(reward, 6), ended, info["success"]) == (1.0, True, True)
assert info["scores"] == {"turns": 1.0, "named": 1.0, "short": 1.0}
env.reset(options={"row": rows["test"][0]})
_, reward, _, _, info = env.step("It is a colour that nobody has named.")
assert (reward, info["success"], info["scores"]["named"]) == (0.0, False, 0.0)

# What a text does to a task is done in a process of its own: wrong where the text is the cause, else a failure.
os.environ["SOME_API_KEY"] = os.environ["GIVEN_API_KEY"] = "secret"
apart = host.env("verifiers:colours-taskset:count=30,seconds=8,memory=1024,variables=GIVEN_API_KEY").make()
for text in ("crash", f"fill {10**11}", "spin 9"):
    apart.reset(options={"row": rows["train"][4]})
    _, reward, ended, cut, info = apart.step(text)
    assert (reward, ended, cut, info["success"]) == (0.0, True, False, False), text
    assert info["reason"], text
for text in ("wait 20", "kill"):
    apart.reset(options={"row": rows["train"][4]})
    with pytest.raises((TimeoutError, RuntimeError)):
        apart.step(text)
for name in ("SOME_API_KEY", "GIVEN_API_KEY"):
    apart.reset(options={"row": rows["train"][4]})
    assert apart.step(f"secret {name}")[4]["scores"]["named"] == float(name == "GIVEN_API_KEY")
apart.close()
with pytest.raises(PluginNotFound, match="has no taskset 'colour'"):
    host.env("verifiers:colour")
with pytest.raises(OptionError, match="no option 'number'"):
    host.env("verifiers:colours-taskset:number=3")
print("sound")
