"""Describes what a plugin offers: a frozen spec for each reward, environment, loss and so on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, ParamSpec, TypeVar, get_args

from grpo.plugins.agents import AgentCall, Answer, Protocol
from grpo.plugins.training import Average, Entropies
from grpo.plugins.types import Case, Isolation, Row, Scope

if TYPE_CHECKING:
    import gymnasium

    from grpo.plugins.sandbox_job import SandboxPool
    from grpo.plugins.session import SessionPool

Parameters = ParamSpec("Parameters")
Returned = TypeVar("Returned")
Kind = Literal["reward", "verifier", "env", "sandbox", "session", "loss", "advantage", "sampler", "agent"]
KINDS: tuple[Kind, ...] = get_args(Kind)


class _Required:
    def __repr__(self) -> str:
        return "required"


REQUIRED = _Required()


@dataclass(frozen=True, slots=True)
class Option:
    """A typed setting of a plugin: a keyword-only parameter of its function or factory.

    Attributes:
        name: the keyword.
        type: its annotation, resolved (for example `float` or `Literal["a", "b"]`).
        default: the value when the user sets none; `REQUIRED` when the user must set it.
    """

    name: str
    type: Any
    default: Any = REQUIRED

    @property
    def required(self) -> bool:
        return self.default is REQUIRED


@dataclass(frozen=True, slots=True)
class Column:
    """A dataset column that a reward or verifier reads: a positional parameter after the completion.

    Attributes:
        name: the column.
        required: a row without it is a failure; otherwise the function gets `default`.
        default: the parameter's default.
        aliases: other names under which data sets have it; the first that a row has is read where it lacks `name`.
    """

    name: str
    required: bool = True
    default: Any = None
    aliases: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """All its names, the first choice first."""
        return (self.name, *self.aliases)

    def found_in(self, row: Row) -> str | None:
        """Returns the name under which a row has the column, or None."""
        return next((name for name in self.names if name in row), None)

    def __str__(self) -> str:
        return self.name + (f" (or {', '.join(self.aliases)})" if self.aliases else "")


class _FunctionOf(Generic[Parameters, Returned]):
    __slots__ = ()

    function: Callable[Parameters, Returned]

    def __call__(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Returned:
        return self.function(*args, **kwargs)


class _FactoryOf(Generic[Parameters, Returned]):
    __slots__ = ()

    factory: Callable[Parameters, Returned]

    def __call__(self, *args: Parameters.args, **options: Parameters.kwargs) -> Returned:
        return self.factory(*args, **options)


@dataclass(frozen=True, slots=True)
class _OfFunction:
    name: str
    version: int
    function: Callable[..., Any]
    doc: str = ""
    options: tuple[Option, ...] = ()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


@dataclass(frozen=True, slots=True)
class RewardSpec(_OfFunction):
    """A reward function and its contract.

    Attributes:
        name: unique among the rewards of its distribution, for example "gsm8k.correctness".
        version: the scoring contract; raised whenever some completion would score differently.
        function: `(completion, *columns, **options) -> float | Scored | None`, plain or async. With `batch`, the
            completion and every column are lists of equal length, and so is the result. With the scope "group", the
            first argument and the result are lists, and the columns are those of the one row that the group answers.
        range: lowest and highest score; a score outside it is a failure of the plugin.
        isolation: where it runs: "process" (killable; for anything that can hang or crash), "thread" or
            "inline" (fast and trusted).
        timeout: seconds for one call.
        whole: the function takes a `Completion` and not its text.
        scope: what one call scores: "completion", or "group" (all completions of one prompt).
        prepare: called with the options as keywords, defaults included, when a user's SPEC is bound and before
            anything is loaded; raises a `UsageError` where the reward cannot work here. None: nothing to look at.
        as_published: it scores as somebody's published text does, quirks included, so that a check notes what that
            text pays for and calls it no error. True, or the options that make it so where they are set otherwise
            than by default.
        rest: the function takes the row's other columns by keyword, as its `**kwargs`.
    """

    kind: ClassVar[Kind] = "reward"
    columns: tuple[Column, ...] = ()
    range: tuple[float, float] = (float("-inf"), float("inf"))
    cases: tuple[Case, ...] = ()
    isolation: Isolation = "process"
    timeout: float = 10.0
    batch: bool = False
    whole: bool = False
    scope: Scope = "completion"
    prepare: Callable[..., None] | None = None
    as_published: bool | tuple[str, ...] = field(default=False, kw_only=True)
    rest: bool = field(default=False, kw_only=True)

    @property
    def any_column(self) -> bool:
        """Whether the function may read any column of a row, and not only those that `columns` names."""
        return self.whole or self.rest


class RewardFunction(_FunctionOf[Parameters, Returned], RewardSpec):
    """What `@reward` makes of a function."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class VerifierSpec(_OfFunction):
    """A verifier function and its contract; the attributes mean what they mean for a `RewardSpec`.

    `function` returns a `Verdict` (with `batch`, a list of them).

    Attributes:
        cheats: takes a row and returns completions that solve nothing, by what they do ("returns True"). A row for
            which the verifier accepts one is weak, and `grpo plugins validate` lists it. None: there are none to try.
    """

    kind: ClassVar[Kind] = "verifier"
    columns: tuple[Column, ...] = ()
    cases: tuple[Case, ...] = ()
    isolation: Isolation = "process"
    timeout: float = 10.0
    batch: bool = False
    whole: bool = False
    prepare: Callable[..., None] | None = None
    as_published: bool | tuple[str, ...] = field(default=False, kw_only=True)
    rest: bool = field(default=False, kw_only=True)
    cheats: Callable[[Mapping[str, Any]], Mapping[str, str]] | None = field(default=None, kw_only=True)

    @property
    def any_column(self) -> bool:
        """Whether the function may read any column of a row, and not only those that `columns` names."""
        return self.whole or self.rest


class VerifierFunction(_FunctionOf[Parameters, Returned], VerifierSpec):
    """What `@verifier` makes of a function."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class EnvSpec:
    """An environment and the rows that it plays.

    The environment is a real `gymnasium.Env` with text observations and text actions. `reset(options={"row":
    row})` starts the episode of one dataset row and reports in its `info`:

    - `prompt`: the chat messages to answer (default: the observation as one user message);
    - `row`: the columns that rewards and verifiers read (default: the dataset row);
    - `demonstration`: a worked answer in the environment's own format, where there is one; with several turns, a list
      of actions, one for each turn;
    - `gold`: without one, a right answer in that format that shows no working, which validation plays and nobody is
      taught.

    `step(action)` returns the reward of the turn, 0.0 where the environment does not score. What its `info` holds that
    JSON can hold reaches rewards as `Completion.info`: `scores` (name to number), `success` (True or False).

    Attributes:
        factory: `(**options) -> gymnasium.Env`.
        dataset: `(split, **options) -> rows`, or None when the environment makes its own episodes; takes the same
            options as the factory. Raises `DatasetError` for rows that cannot be used. `PlacedRows` tell messages
            where each was written.
        rewards: the SPECs scored when the user names none.
        verifier: the SPEC of the verifier that decides accuracy, or None.
        max_turns: how often the policy may speak.
        scores_itself: `step` is called, and its reward counts, also where there is only one turn.
        hub_dataset: the value of the option `dataset` to use when the user names a model of their own.
        ordered: `(**options) -> bool`, whether a run goes through the rows once, from first to last, as for rows that
            get harder; None: a run shuffles them.
        resolve: for a family such as `gym`, whose member the user names after a colon (`gym:FrozenLake-v1`): the
            member's name in, its own spec out; raises `PluginNotFound` for a name that is none. None: no family.
        note: what a user should know before trusting its scores, for example a weakness of its grader; "" for nothing.
        settle: `(**options) -> EnvSpec`: this spec with the rewards, the verifier and the note that fit the options,
            where they follow from the rows that these name; raises what `dataset` raises. None: they never differ.
        longest_call: `(**options) -> float`, the seconds that one call may take where it keeps limits of its own, such
            as a grader's; a run waits as long, though `rollout.step_timeout` is shorter. None: that decides.
        unjudged: why it has neither rewards nor a verifier, and what to do; "" for nothing that a user could not know.
    """

    kind: ClassVar[Kind] = "env"
    name: str
    version: int
    factory: Callable[..., gymnasium.Env[Any, Any]]
    doc: str = ""
    options: tuple[Option, ...] = ()
    dataset: Callable[..., Sequence[Row]] | None = None
    rewards: tuple[str, ...] = ()
    verifier: str | None = None
    max_turns: int = 1
    scores_itself: bool = False
    hub_dataset: str | None = None
    ordered: Callable[..., bool] | None = None
    resolve: Callable[[str], EnvSpec] | None = None
    note: str = ""
    settle: Callable[..., EnvSpec] | None = None
    longest_call: Callable[..., float] | None = None
    unjudged: str = ""

    @property
    def played(self) -> bool:
        """True when rollouts step the environment; else an answer to its prompt is the whole rollout."""
        return self.max_turns > 1 or self.scores_itself

    @property
    def in_session(self) -> bool:
        """True when its episodes have a session: it has the option `session`, and its environments open one."""
        return any(option.name == "session" for option in self.options)

    def __call__(self, *args: Any, **options: Any) -> gymnasium.Env[Any, Any]:
        return self.factory(*args, **options)


class EnvFunction(_FactoryOf[Parameters, "gymnasium.Env[Any, Any]"], EnvSpec, Generic[Parameters]):
    """What `@env` makes of a factory."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class SandboxSpec:
    """A place to run untrusted programs; it reports what happened and never decides a score.

    Attributes:
        factory: `(**options) -> SandboxPool`.
        modules: the Python modules that it needs, each with how to install it.
    """

    kind: ClassVar[Kind] = "sandbox"
    name: str
    version: int
    factory: Callable[..., SandboxPool]
    doc: str = ""
    options: tuple[Option, ...] = ()
    modules: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, *args: Any, **options: Any) -> SandboxPool:
        return self.factory(*args, **options)


class SandboxFunction(_FactoryOf[Parameters, "SandboxPool"], SandboxSpec, Generic[Parameters]):
    """What `@sandbox` makes of a factory."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class SessionSpec:
    """A place to open sessions, each the machine of one episode.

    Attributes:
        factory: `(**options) -> SessionPool`.
        modules: the Python modules that it needs, each with how to install it.
    """

    kind: ClassVar[Kind] = "session"
    name: str
    version: int
    factory: Callable[..., SessionPool]
    doc: str = ""
    options: tuple[Option, ...] = ()
    modules: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, *args: Any, **options: Any) -> SessionPool:
        return self.factory(*args, **options)


class SessionFunction(_FactoryOf[Parameters, "SessionPool"], SessionSpec, Generic[Parameters]):
    """What `@session` makes of a factory."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class LossSpec(_OfFunction):
    """What a policy is trained to make small.

    Attributes:
        function: `(tokens: LossTokens, **options)` to what tokens cost, [B, T] or [B, 1], or a `TokenCosts`.
        average: how the trainer makes one number of it; see `loss`.
        entropies: whether it reads the policy's entropies, and whether with a gradient, which takes more time.
        every_row: it needs completions without an advantage, too; see `loss`.
        weighs: it multiplies with the weights of the correction itself.
        prepare: what `prepare` is for a `RewardSpec`.
    """

    kind: ClassVar[Kind] = "loss"
    average: Average = "batch"
    entropies: Entropies = "none"
    every_row: bool = False
    weighs: bool = False
    prepare: Callable[..., None] | None = None


class LossFunction(_FunctionOf[Parameters, Returned], LossSpec):
    """What `@loss` makes of a function."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class AdvantageSpec(_OfFunction):
    """An advantage estimator: turns the scores of a group into advantages.

    Attributes:
        function: `(scores: GroupScores, **options)` to [groups, G] advantages, or [groups, G, T] of single turns.
        unbiased: in expectation the policy gradient is that of the mean total, up to a factor.
        turns: it reads `scores.turns`, and may return advantages of single turns.
        prepare: what `prepare` is for a `RewardSpec`.
    """

    kind: ClassVar[Kind] = "advantage"
    unbiased: bool = False
    turns: bool = False
    prepare: Callable[..., None] | None = None


class AdvantageFunction(_FunctionOf[Parameters, Returned], AdvantageSpec):
    """What `@advantage` makes of a function."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class SamplerSpec(_OfFunction):
    """What chooses the rows that a run asks next.

    Attributes:
        function: `(seen: RowsSeen, **options)` to `seen.count` row numbers, no two alike and none of `seen.taken`,
            or to fewer where there are no more. It depends on nothing else.
        fewer: it may choose fewer where there are more, one at least: the step is then that much smaller.
    """

    kind: ClassVar[Kind] = "sampler"
    fewer: bool = False


class SamplerFunction(_FunctionOf[Parameters, Returned], SamplerSpec):
    """What `@sampler` makes of a function."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class AgentSpec(_OfFunction):
    """A program that plays episodes by asking the policy over HTTP.

    Attributes:
        function: `(task: AgentTask, access: Access, **options)` to the `Command` that starts a program, or, of a Python
            agent, to its answer: a text, or None for the policy's last message. A Python agent may be async.
        command: the function returns a `Command`; otherwise it is a Python agent.
        protocols: the APIs that the program may call: "chat" (completions), "responses", "messages".
        environment: variables that every episode sets, beside those that every agent has.
        answer: what the answer of a command is: the policy's last message, or what the command writes to stdout.
        programs: the programs that it needs, each with how to install it.
        modules: the Python modules that it needs, each with how to install it. Those of a Python agent are imported
            once, before the first episode.
        prepare: what `prepare` is for a `RewardSpec`.
        auxiliary: whether a call is no part of the task, such as one for a title; None: the plugin does not say.
    """

    kind: ClassVar[Kind] = "agent"
    command: bool = True
    protocols: tuple[Protocol, ...] = ("chat",)
    environment: Mapping[str, str] = field(default_factory=dict)
    answer: Answer = "message"
    programs: Mapping[str, str] = field(default_factory=dict)
    modules: Mapping[str, str] = field(default_factory=dict)
    prepare: Callable[..., None] | None = None
    auxiliary: Callable[[AgentCall], bool] | None = None


class AgentFunction(_FunctionOf[Parameters, Returned], AgentSpec):
    """What `@agent` makes of a function."""

    __slots__ = ()


Spec = (
    RewardSpec | VerifierSpec | EnvSpec | SandboxSpec | SessionSpec | LossSpec | AdvantageSpec | SamplerSpec | AgentSpec
)
