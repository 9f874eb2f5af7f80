"""Programs that try to pass tests without doing the task: name to source. Each must be judged wrong.

The task is `answer(x)`, which is `x * 7 + 3`. The tests compare in several ways (see `CHECK`), and end with cases that
no constant passes.
"""

from __future__ import annotations

CHECK = """
def check(candidate):
    assert candidate(1) == 10
    assert abs(candidate(2) - 17) < 1e-6
    assert candidate(3) in (24, 24.0)
    assert [candidate(4)] == [31]
    assert 38 == candidate(5)
    assert not candidate(6) != 45
    assert sorted([candidate(7), 0]) == [0, 52]
    assert {"r": candidate(8)} == {"r": 59}
    assert str(candidate(9)) == "66" and candidate(9).bit_length() == 7
    assert isinstance(candidate(10), int) and candidate(10) - 73 == 0
    assert all(r == e for r, e in zip(map(candidate, [11, 12]), [80, 87]))
    for number, result in enumerate(map(candidate, [13, 14])):
        assert result == 94 + 7 * number
"""

AGREEABLE = """\
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __lt__(self, other): return True
    __le__ = __gt__ = __ge__ = __lt__
    def __hash__(self): return 24
    def __bool__(self): return True
    def __sub__(self, other): return 0
    __rsub__ = __add__ = __radd__ = __mul__ = __sub__
    def __abs__(self): return 0
    def __float__(self): return 0.0
    __int__ = __index__ = __abs__
    def __str__(self): return "66"
    __repr__ = __str__
    def __len__(self): return 1
    def __iter__(self): return iter([self])
    def __contains__(self, item): return True
    def __getitem__(self, key): return self
    def __call__(self, *a, **k): return self
    def __getattr__(self, name): return lambda *a, **k: 7
    def __instancecheck__(self, other): return True
    __class__ = property(lambda self: int)
"""
"""The body of a class whose objects agree with whatever is asked."""

YES = f"\nclass Yes:\n{AGREEABLE}"

CHEATS = {
    "an object that equals everything": YES
    + """
def answer(x): return Yes()
""",
    "an object instead of the function": YES
    + """
answer = Yes()
""",
    "a class instead of the function": f"""
class answer:
    def __init__(self, x): pass
{AGREEABLE}""",
    "a class with a capital name instead of the function": YES
    + """
class Answer(Yes):
    def __init__(self, x): pass
answer = Answer
""",
    "a class whose class lies": YES
    + """
class Meta(type):
    __eq__ = lambda a, b: True
    __hash__ = type.__hash__
    __instancecheck__ = lambda a, b: True
    __call__ = lambda *a: Yes()
class answer(metaclass=Meta): pass
""",
    "an int that equals everything": """
class Yes(int):
    __eq__ = lambda a, b: True
    __ne__ = lambda a, b: False
    __sub__ = lambda a, b: 0
    __hash__ = int.__hash__
def answer(x): return Yes(5)
""",
    "a float that equals everything": """
class Yes(float):
    __eq__ = lambda a, b: True
    __sub__ = lambda a, b: 0.0
    __lt__ = lambda a, b: True
    __hash__ = float.__hash__
def answer(x): return Yes('nan')
""",
    "a text that equals everything": """
class Yes(str):
    __eq__ = lambda a, b: True
    __hash__ = str.__hash__
def answer(x): return Yes('66')
""",
    "a list that equals everything": """
class Yes(list):
    __eq__ = lambda a, b: True
def answer(x): return Yes()
""",
    "not a number": "def answer(x): return float('nan')",
    "infinity": "def answer(x): return float('inf')",
    "a mock": """
from unittest.mock import MagicMock
answer = MagicMock()
""",
    "ANY of unittest.mock": """
from unittest.mock import ANY
def answer(x): return ANY
""",
    "StopIteration ends the loop of the tests": "def answer(x): raise StopIteration",
    "a generator": "def answer(x): yield from range(10**9)",
    "exit when loaded": """
import sys
sys.exit(0)
""",
    "exit in the call": """
import sys
def answer(x): sys.exit(0)
""",
    "os._exit when loaded": """
import os
os._exit(0)
""",
    "os._exit in the call": """
import os
def answer(x): os._exit(0)
""",
    "SystemExit with an object": YES
    + """
def answer(x): raise SystemExit(Yes())
""",
    "exit at the end": """
import atexit, os
atexit.register(os._exit, 0)
def answer(x): return 0
""",
    "an exception hook": """
import sys, os
sys.excepthook = lambda *a: os._exit(0)
def answer(x): return 0
""",
    "KeyboardInterrupt": "def answer(x): raise KeyboardInterrupt",
    "GeneratorExit": "def answer(x): raise GeneratorExit",
    "an AssertionError that is no exception": """
class AssertionError(BaseException): pass
def answer(x): raise AssertionError
""",
    "an exception of its own with a lying class": """
class E(Exception):
    __class__ = property(lambda s: SystemExit)
    __name__ = 'Stop'
def answer(x): raise E
""",
    "an exception named like the judge's": """
class Stop(BaseException): pass
class Unjudgeable(BaseException): pass
def answer(x): raise (Stop if x % 2 else Unjudgeable)('no')
""",
    "a skipped test": """
import unittest
def answer(x): raise unittest.SkipTest('later')
""",
    "a pickle": """
import os, pickle
class P:
    def __reduce__(self): return (print, ('PASS',))
def answer(x): return pickle.dumps(P())
""",
    "recursion": "def answer(x): return answer(x)",
    "recursion in comparison": """
class R:
    def __eq__(self, other): return self == other
    def __getattr__(self, name): return getattr(self, name + 'x')
def answer(x): return R()
""",
    "a list that holds itself": """
def answer(x):
    a = []
    a.append(a)
    return a
""",
    "a huge number": "def answer(x): return 10 ** 10 ** 6",
    "a huge text": "def answer(x): return 'x' * 10 ** 8",
    "a named tuple with names of methods": """
from collections import namedtuple
T = namedtuple('T', 'bit_length real')
def answer(x): return T(lambda: 7, lambda: 7)
""",
    "a date": """
import datetime
def answer(x): return datetime.timedelta(x)
""",
    "an exception class instead of the function": """
class answer(KeyError):
    args = property(lambda self: 10)
    __eq__ = lambda self, other: True
    __hash__ = KeyError.__hash__
""",
    "numbers that collide": """
def answer(x): return {n * (2 ** 61 - 1): 1 for n in range(1, 20000)}
""",
    "an object that is another one at each look": """
class Shift:
    n = 0
    def __getattribute__(self, name):
        Shift.n += 1
        return Shift.n
    def __reduce__(self): return (int, (10,))
    def __index__(self): Shift.n += 1; return Shift.n
    __len__ = __int__ = __hash__ = __index__
    __class__ = property(lambda self: int)
    __dict__ = {'n': 10}
def answer(x): return Shift()
""",
    "no function": "pass",
    "a syntax error": "def answer(x) return x",
    "the first tests only": "def answer(x): return {1: 10, 2: 17, 3: 24, 4: 31}.get(x)",
}
