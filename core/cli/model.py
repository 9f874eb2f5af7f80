"""Runs `grpo generate`, which tries a model on prompts, and `grpo export`, which writes it to a folder."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from grpo.core.cli import options
from grpo.core.cli.bar import status_line
from grpo.core.cli.flags import table_of
from grpo.core.text.printable import counted, one_line, printable
from grpo.plugins.errors import UsageError
from grpo.plugins.host import Host


@click.command()
@click.argument("model", metavar="[RUN]", required=False)
@click.option("-p", "--prompt", "prompts", metavar="TEXT", multiple=True, help="Prompt; repeat for several.")
@click.option("--file", type=click.Path(path_type=Path), help="Text file with one prompt per line.")
@click.option("-n", "samples", type=options.AT_LEAST_ONE, default=1, help="Completions per prompt. Default: 1.")
@options.temperature
@click.option(
    "--max-new-tokens",
    "max_tokens",
    type=options.AT_LEAST_ONE,
    help="Longest completion, in tokens. Default: the run's; 96 for the embedded model, 512 else.",
)
@click.option("--env", metavar="SPEC", help="Environment whose prompt to use. Default: the run's.")
@options.template_variables
@options.seed
def generate(
    model: str | None,
    prompts: tuple[str, ...],
    file: Path | None,
    samples: int,
    temperature: float | None,
    max_tokens: int | None,
    env: str | None,
    variables: tuple[str, ...],
    seed: int,
) -> None:
    """Try the model of RUN on prompts of your own.

    RUN is a run directory, a model folder or a hub id. Default: the embedded model. Your prompt replaces the question
    in a prompt of the run's environment, so the model sees what it was trained on. A model without a run gets the bare
    prompt, unless --env names an environment.
    """
    texts = [*prompts, *(_lines(file) if file is not None else [])]
    if not texts:
        raise UsageError("no prompt. Write one with -p 'TEXT', or name a file of prompts with --file.")
    if temperature is None:
        temperature = 0.0 if samples == 1 else 1.0
    if samples > 1 and temperature == 0:
        raise UsageError(f"-n {samples} at temperature 0 would give {samples} equal completions. Raise --temperature.")
    with status_line("loading libraries") as begins:
        from grpo.core.measure.generate import answers, encode_fitting, example_of
        from grpo.core.planning.facts import read_model
        from grpo.core.policy.weights import find_weights

        weights = find_weights(model)
        example = example_of(weights, env, Host.discover())
        asked = [example.ask(text) for text in texts]
        max_tokens = max_tokens or weights.max_tokens
        begins("loading the model")
        chosen = table_of("--chat-template-kwargs", variables)
        facts = read_model(weights.base, weights.tokenizer_source, chosen)
        prompt_ids = encode_fitting(facts, asked, max_tokens)
        if weights.note:
            click.echo(f"note: {weights.note}", err=True)
        replies = answers(
            weights,
            facts.tokenizer,
            prompt_ids,
            samples=samples,
            temperature=temperature,
            max_tokens=max_tokens,
            seed=seed,
            loaded=partial(begins, f"sampling {counted(len(texts) * samples, 'completion')}"),
        )
    _print(texts, [[text for text, _ in several] for several in replies])
    cut = sum(cut for several in replies for _, cut in several)
    if cut:
        what = f"{cut} of {len(texts) * samples} completions were" if len(texts) * samples > 1 else "the completion was"
        click.echo(f"note: {what} cut after {max_tokens} tokens. Raise --max-new-tokens for more.", err=True)


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--merge", is_flag=True, help="Merge a LoRA adapter into its base model.")
def export(run: Path, folder: Path, merge: bool) -> None:
    """Write the model of RUN to DIR, for transformers and PEFT.

    DIR must be new or empty; it appears whole or not at all. If the run is not done, the last checkpoint is written.
    RUN may also be a PEFT folder.
    """
    from grpo.core.policy.export import export_weights
    from grpo.core.policy.weights import BASE_FOLDER, find_run_weights, find_weights, is_adapter

    weights = find_weights(str(run)) if is_adapter(run) else find_run_weights(run)
    if weights.note:
        click.echo(f"note: {weights.note}", err=True)
    with status_line("writing the model"):
        written = export_weights(weights, folder, merge=merge)
    if merge and weights.adapter is None:
        click.echo("note: the run trained all weights, so there was no adapter to merge.", err=True)
    if merge or weights.adapter is None:
        click.echo(f"wrote the model to {folder}. Load it with:")
        click.echo(f"    AutoModelForCausalLM.from_pretrained({str(folder)!r})")
    else:
        base = str(folder / BASE_FOLDER) if (written / BASE_FOLDER).is_dir() else weights.base
        click.echo(f"wrote the adapter to {folder}. Load it with:")
        click.echo(f"    PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained({base!r}), {str(folder)!r})")
    click.echo(f"    AutoTokenizer.from_pretrained({str(folder)!r})")
    if weights.config is not None and weights.config.chat_template_kwargs:
        values = ", ".join(f"{name}={value}" for name, value in weights.config.chat_template_kwargs.items())
        click.echo(f"note: unless it is given others, its chat template has the values of the run: {values}", err=True)


def _lines(file: Path) -> list[str]:
    try:
        lines = [line.strip() for line in file.read_text(encoding="utf-8").splitlines()]
    except OSError as error:
        raise UsageError(f"--file {file} cannot be read: {error.strerror}. Name a text file.") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"--file {file} is not UTF-8 text: {error}. Save it as UTF-8.") from None
    if not any(lines):
        raise UsageError(f"--file {file} holds no prompts. Write one on each line.")
    return [line for line in lines if line]


def _print(texts: list[str], replies: list[list[str]]) -> None:
    many = len(texts) > 1 or len(replies[0]) > 1
    for text, several in zip(texts, replies, strict=True):
        if many:
            click.echo(f"--- {one_line(text)}")
        for number, completion in enumerate(several, start=1):
            if len(several) > 1:
                click.echo(f"\n[{number}]")
            click.echo(printable(completion).rstrip("\n"))
        if many:
            click.echo()
