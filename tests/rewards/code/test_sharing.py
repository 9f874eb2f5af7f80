"""What stays one thing across two sandboxes: containers, exceptions, data with methods, functions of the tests."""

from collections.abc import Callable

import pytest

from grpo.rewards.code.results import CodeResult, UnusableTests

pytestmark = pytest.mark.usefixtures("sandbox_pools")

BOX = "class Box:\n    def __init__(self): self._x = []\n    def all(self): return self._x\n"
BOX += "    def copy(self): return list(self._x)\n    def add(self, x): self._x.append(x)\n"
ERRORS = """
class AppError(Exception):
    code = 1
    def __init__(self, status, text='oops'):
        super().__init__(text)
        self.status = status
    @property
    def is_client(self): return 400 <= self.status < 500
class Missing(AppError, LookupError):
    code = 2
class Parser:
    class Error(Exception): pass
    def parse(self, text): raise Parser.Error(text)
def find(key):
    try: return {}[key]
    except KeyError as error: raise Missing(404) from error
def status(call):
    try: call()
    except AppError as error: return error.status
def tried(call, kinds):
    try: return call()
    except kinds: return 'caught'
"""
STATS = """
from collections import namedtuple
class Stats(list):
    def mean(self): return sum(self) / len(self)
    def __str__(self): return 'Stats'
class Slug(str):
    def words(self): return self.split('-')
class Pay(namedtuple('Pay', 'name amount')):
    @property
    def yearly(self): return 12 * self.amount
Point = namedtuple('Point', 'x y')
def stats(): return Stats([1, 2, 3])
def slug(): return Slug('a-b')
def pay(): return Pay('a', 2)
def point(): return Point(1, 2)
"""


def test_what_tests_hold_is_the_solutions_own_container(
    passes: Callable[..., None], fails: Callable[..., CodeResult]
) -> None:
    passes(BOX, "b = Box()\nassert b.all() is b.all()\nv, c = b.all(), b.copy()\nb.add(1)\nassert v == [1] and c == []")
    passes(BOX, "b = Box()\nb.all().append(3)\nassert b.all() == [3]\nb.copy().append(4)\nassert b.all() == [3]")
    fails(BOX, "b = Box()\nassert b.copy() is b.copy()")
    fails(BOX, "b = Box()\nassert b.all() is not b.all()")
    kept = "class Bag:\n    def __init__(self, items): self.items = items\n"
    tests = "x = ['a']\nb = Bag(x)\nx.append('b')\n"
    passes(kept, f"{tests}assert b.items == ['a', 'b'] and b.items is x")
    fails(kept, f"{tests}assert b.items == ['a']")
    fails("class T:\n    def __init__(s, m=[]): s.m = m", "a, b = T(), T()\na.m.append(1)\nassert b.m == []")


def test_a_global_container_is_watched(passes: Callable[..., None], fails: Callable[..., CodeResult]) -> None:
    log = "LOG = []\ndef record(x):\n    LOG.append(x)\n    return len(LOG)\n"
    passes(log, "assert record('a') == 1\nassert LOG == ['a']\nLOG.clear()\nassert record('b') == 1")
    fails(log.replace("    LOG.append(x)\n", ""), "record('a')\nassert LOG == ['a']")
    named = "REGISTRY = {}\ndef register(name): return lambda f: REGISTRY.setdefault(name, f)\n"
    passes(named, "@register('x')\ndef one(): return 1\nassert 'x' in REGISTRY and REGISTRY['x']() == 1")


def test_an_exception_has_what_its_class_defines(passes: Callable[..., None], fails: Callable[..., CodeResult]) -> None:
    passes(
        ERRORS,
        "try: find('k')\nexcept AppError as e:\n    assert e.code == 2 and e.is_client and e.status == 404\n"
        "    assert isinstance(e, LookupError) and isinstance(e.__cause__, KeyError)\nelse: assert False",
        "e = Missing(500, 'x')\nassert e.status == 500 and not e.is_client and str(e) == 'x' and Missing.code == 2",
        "def boom(): raise AppError(418)\nassert status(boom) == 418",
        "try: Parser().parse('q')\nexcept Parser.Error as e: assert str(e) == 'q'",
        "class Mine(Exception): pass\ndef bad(): raise Mine\nassert tried(bad, (Mine,)) == 'caught'",
    )
    fails(ERRORS, "try: find('k')\nexcept AppError as e: assert e.code == 1")
    liar = "class Yes:\n    __eq__ = lambda s, o: True\nclass E(Exception):\n    code = Yes()\ndef f(): raise E"
    fails(liar, "try: f()\nexcept E as e: assert e.code == 404")
    broad = "class M(type):\n    __instancecheck__ = lambda c, o: True\nclass E(Exception, metaclass=M): pass\n"
    fails(broad + "def f(): raise KeyError", "import pytest\nwith pytest.raises(E):\n    f()")


def test_data_with_methods_of_its_own_is_data_all_the_same(
    passes: Callable[..., None], fails: Callable[..., CodeResult]
) -> None:
    passes(STATS, "s = stats()\nassert s.mean() == 2 and s == [1, 2, 3] and str(s) == 'Stats' and isinstance(s, Stats)")
    passes(STATS, "s = stats()\ns.append(6)\nassert s.mean() == 3 and s[3:] == [6]")
    passes(STATS, "assert slug().words() == ['a', 'b'] and slug() == 'a-b'", "assert pay().yearly == 24")
    passes(STATS, "assert isinstance(point(), Point) and point() == (1, 2)")
    for method, asked in (
        ("__eq__(s, o): return True", "f() == [4]"),
        ("__len__(s): return 3", "len(f()) == 3"),
        ("__contains__(s, o): return True", "4 in f()"),
        ("__getitem__(s, i): return 4", "f()[0] == 4"),
        ("__iter__(s): return iter([1, 2])", "list(f()) == [1, 2]"),
        ("index(s, o): return 0", "f().index(4) == 0"),
    ):
        fails(f"class L(list):\n    def {method}\ndef f(): return L([9])", f"assert {asked}")


def test_a_function_of_the_tests_is_a_function_with_its_parameters(passes: Callable[..., None]) -> None:
    asked = "import inspect\ndef names(f): return list(inspect.signature(f).parameters)\n"
    asked += "def about(f): return f.__name__, f.__doc__, f.__code__.co_argcount, f.__annotations__, f()\n"
    passes(asked, "assert names(lambda a, *b, c=1, **d: 0) == ['a', 'b', 'c', 'd']")
    passes(asked, "def g(x: int = 3):\n    'Does.'\n    return x\nassert about(g) == ('g', 'Does.', 1, {'x': int}, 3)")
    keyed = "def f(call): return call(1, 2, 3, c=4, d=5), call(0, c=1)"
    passes(keyed, "assert f(lambda a, *b, c, **d: (a, b, c, d)) == ((1, (2, 3), 4, {'d': 5}), (0, (), 1, {}))")


def test_a_generator_ends_with_its_value(passes: Callable[..., None], fails: Callable[..., CodeResult]) -> None:
    gen = "def gen():\n    total = 0\n    while (x := (yield total)) is not None: total += x\n    return total\n"
    passes(
        gen,
        "g = gen()\nnext(g)\ng.send(3)\ntry:\n    g.send(None)\nexcept StopIteration as e:\n    assert e.value == 3",
    )
    fails("def f(x): raise StopIteration", "assert all(map(f, [1, 2]))")


def test_class_patterns_match_objects_of_the_solution(
    passes: Callable[..., None], fails: Callable[..., CodeResult]
) -> None:
    money = (
        "from dataclasses import dataclass\n@dataclass\nclass Money:\n    amount: int\ndef pay(n): return Money(n)\n"
    )
    asked = "match pay(5):\n    case Money(amount=4): found = 4\n    case Money(n): found = n\nassert found == 5"
    passes(money, asked)
    fails(money.replace("return Money(n)", "return n"), asked)


LIAR = """
class Diff:
    def __init__(self, *given): pass
    def __add__(self, other): return ANSWER
    __radd__ = __sub__ = __rsub__ = __mul__ = __mod__ = __add__
    def __lt__(self, other): return other % 2 < 1
    __gt__ = __le__ = __ge__ = __lt__
    def __abs__(self): return self
"""


@pytest.mark.parametrize(
    "asked", ["Diff(1) < 5", "Diff(1) - 1 == 2", "abs(Diff(1) - 0.5) < 1e-6", "10 - Diff(3) == 2", "Diff(3) % 2 == 1"]
)
def test_an_object_beside_a_number_cannot_make_itself_undecided(fails: Callable[..., CodeResult], asked: str) -> None:
    for answer in ("0", "self", "2"):
        fails(LIAR.replace("ANSWER", answer), f"assert {asked}")


def test_an_object_beside_a_number_may_answer_as_one(passes: Callable[..., None]) -> None:
    number = "class Celsius:\n    def __init__(self, d): self.d = d\n    def __lt__(self, o): return self.d < o\n"
    passes(number + "    def __sub__(self, o): return self.d - o", "assert Celsius(10) < 15 and Celsius(20) - 5 == 15")


@pytest.mark.parametrize(
    "tests",
    [
        "def test_f(monkeypatch):\n    monkeypatch.setenv('A', 'b')\n    assert f(1) == 1",
        "class D(E): pass\nassert f(D) == D",
    ],
)
def test_what_tests_cannot_see_across_leaves_the_verdict_undecided(
    judged: Callable[..., CodeResult], tests: str
) -> None:
    with pytest.raises(UnusableTests):
        judged("class E(Exception): pass\ndef f(x): return x", tests=tests)
