"""Whatever a plugin does while it loads is a line about that plugin, and the others go on."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable

import pytest

from grpo.plugins._host.entry_points import Entry
from grpo.plugins._host.loading import HOOK_OF_KIND
from grpo.plugins.errors import PluginNotFound
from grpo.plugins.host import Host, Problem
from grpo.plugins.specs import Kind

GOOD = """
@reward(version=1)
def good(completion: str) -> float:
    return 1.0

@hookimpl
def grpo_rewards():
    return [good]
"""

HookSource = Callable[..., Entry]


def names(host: Host) -> list[str]:
    return [f"{known.distribution}/{known.spec.name}" for known in host.registrations()]


def only_problem(host: Host) -> Problem:
    [problem] = host.problems
    return problem


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("import no_such_module_anywhere", ["ModuleNotFoundError", "no_such_module_anywhere", "plugin_0.py:3"]),
        ("def broken(:\n    pass", ["SyntaxError", "plugin_0.py, line 3"]),
        ("import sys\nsys.exit(3)", ["SystemExit: 3"]),
        ("class Odd(BaseException):\n    pass\nraise Odd('of its own kind')", ["Odd: of its own kind"]),
        ("1 / 0", ["ZeroDivisionError", "plugin_0.py:3"]),
        ("raise RuntimeError('two\\nlines \\x1b[31m')", ["RuntimeError: two lines ?[31m"]),
        ("@reward(version=-1)\ndef f(completion):\n    return 0.0", ["SpecError", "version -1"]),
        ("@reward(version=1)\ndef f(text):\n    return 0.0", ["SpecError", "first parameter must be named"]),
        ("@reward(version=1)\ndef f(completion, *rest):\n    return 0.0", ["SpecError", "*rest"]),
    ],
)
def test_a_plugin_that_cannot_be_imported_stops_nothing_else(
    make_entry: HookSource, source: str, words: list[str]
) -> None:
    host = Host([make_entry(source, distribution="bad-dist"), make_entry(GOOD, distribution="good-dist")])
    assert names(host) == ["good-dist/good"]
    problem = only_problem(host)
    assert (problem.state, problem.distribution, problem.entry_point) == ("broken", "bad-dist", "rewards")
    assert "\n" not in problem.line
    for word in words:
        assert word in problem.line
    assert "Traceback" in problem.traceback


def test_an_entry_point_to_nothing_is_a_problem() -> None:
    point = importlib.metadata.EntryPoint("rewards", "grpo.plugins:no_such_attribute", "grpo")
    problem = only_problem(Host([Entry("bad-dist", "1.0", "rewards", point.load)]))
    assert problem.state == "broken"
    assert "no_such_attribute" in problem.line


def test_ctrl_c_during_the_import_is_the_users(make_entry: HookSource) -> None:
    with pytest.raises(KeyboardInterrupt):
        Host([make_entry("raise KeyboardInterrupt")])


@pytest.mark.parametrize(
    ("hook", "state", "words"),
    [
        ("raise ValueError('no luck')", "broken", "grpo_rewards raised ValueError: no luck"),
        ("raise SystemExit('bye')", "broken", "grpo_rewards raised SystemExit: bye"),
        ("return None", "invalid", "returned None; return a list"),
        ("return {'good': good}", "invalid", "type dict; return a list"),
        ("return good", "invalid", "type RewardFunction; return a list"),
        ("return (good for _ in range(1))", "invalid", "type generator; return a list"),
        ("return ['good']", "invalid", "expected a function, or what @reward makes of one, got str 'good'"),
        ("return [lambda completion: 1.0]", "invalid", "decorate it with @reward(version=1)"),
        ("return [judge]", "invalid", "expected a function, or what @reward makes of one, got the verifier 'judge'"),
        ("return [good, good]", "invalid", "two rewards named 'good'"),
        ("return type('L', (list,), {'__len__': lambda s: 1 / 0})(['x'])", "invalid", "got str 'x'"),
        ("return [RewardSpec(type('S', (str,), {})('n'), 1, print)]", "invalid", "class 'S', not a plain str"),
        ("return [RewardSpec('n', 1, print, doc=type('S', (str,), {})('d'))]", "invalid", "doc must be text, a plain"),
    ],
)
def test_a_hook_that_misbehaves_spoils_only_itself(make_entry: HookSource, hook: str, state: str, words: str) -> None:
    entry = make_entry(
        f"""
@reward(version=1)
def good(completion: str) -> float:
    return 1.0

@verifier(version=1)
def judge(completion: str) -> Verdict:
    return Verdict(True)

@hookimpl
def grpo_rewards():
    {hook}

@hookimpl
def grpo_verifiers():
    return [judge]
""",
        distribution="odd-dist",
    )
    host = Host([entry, make_entry(GOOD.replace("good", "fine"), distribution="good-dist")])
    problem = only_problem(host)
    assert (problem.state, problem.distribution) == (state, "odd-dist")
    assert words in problem.line
    assert "odd-dist/judge" in names(host)
    assert "good-dist/fine" in names(host)


def test_the_usable_specs_of_a_mixed_list_are_kept(make_entry: HookSource) -> None:
    host = Host([make_entry(GOOD.replace("[good]", "[3, good]"))])
    assert names(host) == ["some-dist/good"]
    assert "got int '3'" in only_problem(host).line


def test_a_misspelt_hook_is_reported_with_the_right_name(make_entry: HookSource) -> None:
    host = Host([make_entry(GOOD + "\n@hookimpl\ndef grpo_verifers():\n    return []\n")])
    assert names(host) == ["some-dist/good"]
    problem = only_problem(host)
    assert problem.state == "misspelt"
    assert "'grpo_verifers' does not exist" in problem.line
    assert "Did you mean 'grpo_verifiers'?" in problem.line


def test_an_unknown_hook_that_is_marked_optional_is_no_problem(make_entry: HookSource) -> None:
    source = GOOD + "\n@hookimpl(optionalhook=True)\ndef grpo_of_the_future():\n    return []\n"
    assert Host([make_entry(source)]).problems == ()


def test_a_hook_without_its_decorator_is_reported(make_entry: HookSource) -> None:
    host = Host([make_entry(GOOD.replace("@hookimpl\n", ""))])
    assert names(host) == []
    assert "'grpo_rewards' lacks the decorator @hookimpl" in only_problem(host).line


def test_a_module_without_hooks_is_reported(make_entry: HookSource) -> None:
    assert "implements no hook" in only_problem(Host([make_entry("x = 1")])).line


def test_a_hook_with_an_argument_that_it_does_not_get_is_reported(make_entry: HookSource) -> None:
    host = Host([make_entry(GOOD.replace("def grpo_rewards():", "def grpo_rewards(config):"))])
    problem = only_problem(host)
    assert problem.state == "broken"
    assert "config" in problem.line


def test_what_a_plugin_prints_goes_to_stderr(make_entry: HookSource, capsys: pytest.CaptureFixture[str]) -> None:
    Host(
        [make_entry("print('hello from the import')\n" + GOOD.replace("return [good]", "print('hook'); return [good]"))]
    )
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "hello from the import" in captured.err
    assert "hook" in captured.err


def test_one_entry_point_name_twice_loads_both(make_entry: HookSource) -> None:
    first = make_entry(GOOD, distribution="first-dist", name="rewards")
    second = make_entry(GOOD.replace("good", "fine"), distribution="second-dist", name="rewards")
    host = Host([first, second])
    assert names(host) == ["first-dist/good", "second-dist/fine"]
    assert host.problems == ()


def test_every_kind_is_collected(make_entry: HookSource) -> None:
    host = Host(
        [
            make_entry(
                """
                @reward(version=1)
                def r(completion): return 0.0

                @verifier(version=1)
                def v(completion): return Verdict(None)

                @hookimpl
                def grpo_rewards(): return [r]

                @hookimpl
                def grpo_verifiers(): return (v,)

                @hookimpl
                def grpo_envs(): return [EnvSpec("e", 1, dict)]

                @hookimpl
                def grpo_sandboxes(): return [SandboxSpec("s", 1, dict)]
                """
            )
        ]
    )
    assert host.problems == ()
    assert [(known.kind, known.spec.name) for known in host.registrations()] == [
        ("reward", "r"),
        ("verifier", "v"),
        ("env", "e"),
        ("sandbox", "s"),
    ]
    assert [known.spec.name for known in host.registrations("env")] == ["e"]


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("@reward()\ndef near(completion: str) -> float:\n    return 1.0\n", "reward"),
        ("@verifier()\ndef near(completion: str) -> Verdict:\n    return Verdict(None)\n", "verifier"),
        ("@env()\ndef near(*, size: int = 1):\n    return size\n", "env"),
        ("@sandbox()\ndef near():\n    return None\n", "sandbox"),
        ("@loss()\ndef near(tokens):\n    return -tokens.logps\n", "loss"),
        ("@advantage()\ndef near(scores):\n    return scores.totals\n", "advantage"),
    ],
)
def test_a_plugin_of_a_package_needs_a_version(make_entry: HookSource, source: str, kind: Kind) -> None:
    hook = HOOK_OF_KIND[kind]
    source = f"from grpo import advantage, env, loss, sandbox\n{source}"
    host = Host([make_entry(f"{source}\n@hookimpl\ndef {hook}():\n    return [near]\n")])
    problem = only_problem(host)
    line = (
        f"{kind} 'near' has no version, and in a package it needs one, so that users can tell that its scores changed; "
        "give it version=1"
    )
    assert (problem.state, problem.line, problem.plugin) == ("invalid", line, f"{kind}:near")
    with pytest.raises(PluginNotFound) as caught:
        getattr(host, kind)("near")
    assert f"some-dist has one that cannot be used: {line}." in str(caught.value)


HOSTILE = """
from grpo import RewardSpec

class Raising(RewardSpec):
    @property
    def version(self):
        raise RuntimeError("no version")

class Nameless(str):
    def __repr__(self):
        raise RuntimeError("no repr")

class Nowhere:
    @property
    def __class__(self):
        raise RuntimeError("no class")

class NeverEqual:
    def __eq__(self, other):
        raise RuntimeError("no comparison")

class Mute(Exception):
    def __str__(self):
        raise RuntimeError("no message")

def score(completion):
    return 1.0
"""


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("object.__new__(Raising)", "returned what cannot be read: AttributeError"),
        ("RewardSpec(Nameless('a b'), 1, score)", "returned what cannot be read: RuntimeError: no repr"),
        ("Nowhere()", "returned what cannot be read: RuntimeError: no class"),
        (
            "RewardSpec('near', 1, score, scope=NeverEqual())",
            "returned what cannot be read: RuntimeError: no comparison",
        ),
        ("(_ for _ in ()).throw(Mute())", "grpo_rewards raised Mute: (its message cannot be printed)"),
    ],
)
def test_a_spec_whose_attributes_raise_spoils_only_itself(make_entry: HookSource, spec: str, words: str) -> None:
    listed = "[score_of, SPEC]" if "throw" not in spec else "list(SPEC)"
    source = f"{HOSTILE}\nscore_of = reward(version=1, name='fine')(score)\n@hookimpl\ndef grpo_rewards():\n"
    host = Host(
        [make_entry(f"{source}    return {listed.replace('SPEC', spec)}\n"), make_entry(GOOD, distribution="other")]
    )
    assert words in only_problem(host).line
    assert only_problem(host).state == "broken"
    assert names(host)[-1] == "other/good"
    assert len(names(host)) == (2 if "throw" not in spec else 1)


def test_a_list_that_cannot_be_iterated_is_read_by_place(make_entry: HookSource) -> None:
    source = f"""
class Once(list):
    def __iter__(self):
        raise RuntimeError("not twice")
{GOOD.replace("return [good]", "return Once([good])")}"""
    assert names(Host([make_entry(source)])) == ["some-dist/good"]


def test_an_exception_that_says_nothing_is_a_problem_like_any_other(make_entry: HookSource) -> None:
    source = f"{HOSTILE}\nraise ImportError('odd', name=5) from Mute()\n"
    assert "ImportError: odd" in only_problem(Host([make_entry(source)])).line
    assert (
        "Mute: (its message cannot be printed)" in only_problem(Host([make_entry(f"{HOSTILE}\nraise Mute()\n")])).line
    )
