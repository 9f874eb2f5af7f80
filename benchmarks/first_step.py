"""Times `grpo run` from the command to the end of its first step, beside a script with plain TRL, in turn.

    python benchmarks/first_step.py [--rounds 5] [--lora] [--first-evaluation]

Both train the embedded model on the same prompts, 8 with 8 completions each, with the same reward and optimizer, as a
user starts them: one by its command, the other by `python script.py`, which is in SCRIPT. A side is over when it prints
its first step. What other programs do to a measurement is to lengthen it, so the shortest run of each side counts, of
processor time (that of all threads and child processes) and of wall time. --first-evaluation lets ours measure held-out
accuracy first, as `grpo run` does by default; the script measures none.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROMPTS, GROUP, LENGTH = 8, 8, 96
SCRIPT = """
import json, sys
from datasets import Dataset
from peft import LoraConfig
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer

rows, model, out, lora = json.load(open(sys.argv[1])), *sys.argv[2:]

def proximity(completions, answer, **_):
    numbers = ["".join(c for c in done[0]["content"] if c.isdigit()) for done in completions]
    return [float(number == gold) for number, gold in zip(numbers, answer)]

class Done(TrainerCallback):
    def on_step_end(self, *_, **__):
        print("step 1", flush=True)

trainer = GRPOTrainer(
    model=model,
    reward_funcs=[proximity],
    args=GRPOConfig(output_dir=out, max_steps=1, per_device_train_batch_size={batch}, num_generations={group},
                    max_completion_length={length}, learning_rate=5e-5, report_to="none",
                    save_strategy="no", bf16=False),
    train_dataset=Dataset.from_list(rows),
    peft_config=LoraConfig(r=16, target_modules="all-linear") if lora == "lora" else None,
    callbacks=[Done()],
)
trainer.train()
"""
OURS, TRL = "grpo run", "plain TRL"


def write_script(folder: Path) -> list[str]:
    """Writes the script and its rows; returns its command without its last argument."""
    from grpo.core.config.schema import parse_config
    from grpo.core.planning.decide import make_plan
    from grpo.plugins.host import Host

    plan = make_plan(parse_config({"env": "gsm8k", "rewards": ["proximity"]}), Host.discover())
    rows = [{"prompt": list(episode.prompt), "answer": episode.row["answer"]} for episode in plan.train[:64]]
    (folder / "rows.json").write_text(json.dumps(rows))
    text = SCRIPT.replace("{batch}", str(PROMPTS * GROUP)).replace("{group}", str(GROUP))
    (folder / "script.py").write_text(text.replace("{length}", str(LENGTH)))
    return [sys.executable, *(str(folder / name) for name in ("script.py", "rows.json")), plan.source.path]


def processor_seconds(process: int) -> float:
    """Returns the processor time of a process, its threads and its ended children."""
    after_name = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, after_name[11:15])) / os.sysconf("SC_CLK_TCK")


def first_step(command: list[str]) -> tuple[float, float]:
    """Runs a command until it prints its first step; returns processor time and wall time."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    began = time.perf_counter()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, start_new_session=True
    ) as child:
        assert child.stdout is not None
        lines = []
        for line in child.stdout:
            lines.append(line)
            if line.startswith("step 1 ") or line == "step 1\n":
                seconds = processor_seconds(child.pid), time.perf_counter() - began
                os.killpg(child.pid, signal.SIGKILL)
                return seconds
    raise SystemExit(f"{' '.join(command)} made no step:\n{''.join(lines)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--lora", action="store_true")
    parser.add_argument("--first-evaluation", action="store_true")
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error("--rounds must be 1 or more")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ours = [sys.executable, "-m", "grpo", "run", "--env", "gsm8k", "--reward", "proximity", "--steps", "1"]
        ours += ["--lora"] * options.lora + ["--eval-size", "0"] * (not options.first_evaluation)
        script = write_script(folder)
        taken: dict[str, list[tuple[float, float]]] = {OURS: [], TRL: []}
        for number in range(options.rounds + 1):
            out = str(folder / f"run-{number}")
            commands = {OURS: [*ours, "--out", out], TRL: [*script, f"{out}-trl", "lora" if options.lora else "full"]}
            for side, command in commands.items():
                seconds = first_step(command)
                if number:  # the first round fills the disk cache and writes the bytecode
                    taken[side].append(seconds)
    shortest = {side: [min(column) for column in zip(*runs, strict=True)] for side, runs in taken.items()}
    print(f"{'to the end of the first step':<30}{'processor s':>12}{'wall s':>9}   shortest of {options.rounds}")
    for side, (busy, wall) in shortest.items():
        print(f"{side:<30}{busy:>12.2f}{wall:>9.2f}")
    ratios = [mine / theirs for mine, theirs in zip(shortest[OURS], shortest[TRL], strict=True)]
    print(f"{'grpo run / plain TRL':<30}{ratios[0]:>12.2f}{ratios[1]:>9.2f}")


if __name__ == "__main__":
    main()
