"""More programs that try to pass tests without doing the task of `cheats.py`, by what they answer or how they end."""

from __future__ import annotations

ENDINGS = {
    "exit in __del__": """
import sys
class Last:
    def __del__(self): sys.exit(0)
def answer(x):
    Last()
    return 0
""",
    "os._exit in __del__": """
import os
class Last:
    def __del__(self): os._exit(0)
def answer(x): return Last()
""",
    "os._exit in a hash": """
import os
class Last(int):
    def __hash__(self): os._exit(0)
    def __index__(self): os._exit(0)
def answer(x): return {Last(3): Last(4)}
""",
    "a signal handler that leaves": """
import os, signal
signal.signal(signal.SIGALRM, lambda *a: os._exit(0))
signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
def answer(x):
    while True: pass
""",
    "a thread that leaves": """
import os, threading, time
threading.Thread(target=lambda: (time.sleep(0.05), os._exit(0)), daemon=True).start()
def answer(x):
    time.sleep(1)
    return 0
""",
    "a thread that outlives the program": """
import os, threading, time
def late():
    while True:
        for fd in range(1, 16):
            try: os.write(fd, b'["unit", 0, "passed", "", 0]\\n')
            except OSError: pass
        time.sleep(0.01)
for _ in range(8): threading.Thread(target=late).start()
def answer(x): return 0
""",
    "quit": "def answer(x): quit(0)",
    "exit that is a function": """
import sys
sys.exit = lambda *a: None
raise SystemExit(0)
""",
    "every signal ignored": """
import signal, time
for number in range(1, 65):
    try: signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError): pass
signal.setitimer(signal.ITIMER_PROF, 0)
def answer(x):
    while True: time.sleep(0.1)
""",
    "aborted": """
import os
def answer(x): os.abort()
""",
    "a stack that overflows in C": """
import ctypes
def answer(x):
    ctypes.string_at(8)
""",
    "the trampoline of a generator": """
def answer(x):
    try:
        yield 7 * x
    except BaseException:
        yield 7 * x + 3
    finally:
        raise SystemExit(0)
""",
    "a generator that swallows its end": """
def stubborn():
    while True:
        try: yield 0
        except GeneratorExit: continue
def answer(x): return stubborn()
""",
    "a coroutine": """
async def answer(x): return 7 * x + 4
""",
    "a coroutine that never ends": """
import asyncio
async def answer(x): await asyncio.sleep(3600)
""",
    "an ExceptionGroup of what is expected": """
def answer(x): raise ExceptionGroup('passed', [AssertionError(), StopIteration(10)])
""",
    "an exception with a mind of its own": """
class Fine(Exception):
    def __init__(self, *given):
        self.__grpo_text__ = 'passed'
        self.args = (10,)
        self.with_traceback = self.add_note = None
    __str__ = lambda self: 'passed'
    __eq__ = lambda self, other: True
    __hash__ = None
def answer(x): raise Fine
""",
    "warnings as answers": """
import warnings
warnings.showwarning = lambda *a, **k: __import__('os')._exit(0)
warnings.simplefilter('error')
def answer(x):
    warnings.warn('passed')
    return 0
""",
}

COMPARISONS = {
    "a bool": "def answer(x): return True",
    "a fraction that equals": """
from fractions import Fraction
class Same(Fraction):
    __eq__ = lambda a, b: True
    __hash__ = Fraction.__hash__
    __sub__ = __rsub__ = lambda a, b: 0
def answer(x): return Same(1, 3)
""",
    "a decimal that is no number": """
from decimal import Decimal
def answer(x): return Decimal('sNaN')
""",
    "a decimal without end": """
from decimal import Decimal
def answer(x): return Decimal('1E+999999999')
""",
    "complex infinity": "def answer(x): return complex('inf+nanj')",
    "minus zero": "def answer(x): return -0.0",
    "a view of a dictionary": """
def answer(x): return {n: n for n in range(0, 200)}.keys()
""",
    "a view with pairs that are none": """
class Pairs(dict):
    def items(self): return [self]
def answer(x): return Pairs(a=1).items()
""",
    "a counter": """
from collections import Counter
def answer(x): return Counter()
""",
    "a defaultdict": """
from collections import defaultdict
def answer(x): return defaultdict(lambda: x * 7 + 3)
""",
    "a range of all numbers": "def answer(x): return range(-10**18, 10**18)",
    "a slice": "def answer(x): return slice(x * 7 + 3)",
    "a list with an iteration of its own": """
class L(list):
    __iter__ = lambda self: iter([10, 17, 24])
    __len__ = lambda self: 1
    __getitem__ = lambda self, k: 10
def answer(x): return L([0])
""",
    "a dictionary with items of its own": """
class D(dict):
    __iter__ = keys = values = items = lambda self: iter([('r', 59)])
    __missing__ = lambda self, key: 59
def answer(x): return D()
""",
    "a tuple with fields like methods": """
from collections import namedtuple
T = namedtuple('int', ['real', 'numerator', 'bit_length'])
def answer(x): return T(x * 7 + 3, x * 7 + 3, 7)
""",
    "an integer that changes": """
class Turn(int):
    seen = 0
    def __add__(self, other):
        Turn.seen += 1
        return Turn.seen
    __index__ = __int__ = __hash__ = __add__
def answer(x): return Turn(4)
""",
    "a metaclass with an answer for everything": """
class All(type):
    __eq__ = __instancecheck__ = __subclasscheck__ = __contains__ = lambda *a: True
    __hash__ = lambda self: 10
    __getattr__ = lambda self, name: lambda *a: True
    __sub__ = __rsub__ = __abs__ = __round__ = lambda *a: 0
    __call__ = lambda self, *a: self
    __iter__ = lambda self: iter([self])
class answer(metaclass=All): pass
""",
    "an object that rounds and formats": """
class Near:
    __round__ = lambda self, *n: 17
    __format__ = lambda self, form: '66'
    __str__ = lambda self: '66'
    __sub__ = __isub__ = __rsub__ = lambda self, other: 0
    __abs__ = __trunc__ = __floor__ = __ceil__ = lambda self: 0
    __eq__ = lambda self, other: True
def answer(x): return Near()
""",
    "attributes of a module": """
import sys, types
class M(types.ModuleType):
    __getattr__ = lambda self, name: (lambda *a, **k: True)
    __eq__ = lambda self, other: True
    __call__ = lambda self, *a: self
    __hash__ = types.ModuleType.__hash__
answer = M('answer')
def __getattr__(name): return answer
""",
    "a partial with an answer": """
import functools
class P(functools.partial):
    __eq__ = lambda a, b: True
    __sub__ = lambda a, b: 0
def answer(x): return P(print)
""",
    "a proxy of the expected type": """
import weakref
class Box(int): __eq__ = lambda a, b: True
class Holder: __class__ = int
kept = Holder()
def answer(x): return weakref.proxy(kept)
""",
    "an enumeration that equals": """
import enum
class E(enum.Enum):
    A = 1
    __eq__ = lambda a, b: True
    __hash__ = lambda a: 10
def answer(x): return E.A
""",
    "too many digits": """
import sys
sys.set_int_max_str_digits(0)
def answer(x): return int('7' * 50000)
""",
    "names of the customary": """
from math import *
from itertools import *
def count(*a): return True
def answer(x): return repeat
""",
}

CHEATS = {**ENDINGS, **COMPARISONS}
