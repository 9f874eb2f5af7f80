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

CHEATS = {
    "an object that equals everything": """
class Yes:
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

def answer(x): return Yes()
""",
    "an object instead of the function": """
class Yes:
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

answer = Yes()
""",
    "a class instead of the function": """
class answer:
    def __init__(self, x): pass
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
""",
    "a class with a capital name instead of the function": """
class Yes:
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

class Answer(Yes):
    def __init__(self, x): pass
answer = Answer
""",
    "a class whose class lies": """
class Yes:
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
    "SystemExit with an object": """
class Yes:
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
    "built-ins replaced": """
import builtins
for n in ('abs','all','any','sorted','isinstance','str','len'):
    setattr(builtins, n, lambda *a, **k: True)
builtins.AssertionError = type('A', (), {})
def answer(x): return 0
""",
    "globals named like built-ins": """
abs = lambda *a: 0
all = any = isinstance = lambda *a: True
sorted = lambda *a: [0, 52]
enumerate = zip = map = lambda *a: []
check = lambda c: None
__grpo_units__ = None
def answer(x): return 0
""",
    "check redefined": """
def check(candidate): return True
def answer(x): return 0
""",
    "tracing": """
import sys
def t(f, e, a):
    try: f.f_locals['candidate'] = lambda x: x * 7 + 4
    except Exception: pass
    return t
sys.settrace(t)
sys.setprofile(t)
def answer(x): return 0
""",
    "frames": """
import sys
def answer(x):
    f = sys._getframe()
    while f:
        for v in [*f.f_locals.values(), *f.f_globals.values()]:
            if isinstance(v, str) and 'assert' in v: return 0
            if isinstance(v, (int, float)) and v in (10, 17, 24): return v
        f = f.f_back
    return 0
""",
    "the garbage collector": """
import gc
def answer(x):
    for o in gc.get_objects():
        if isinstance(o, (tuple, list)) and len(o) == 2 and o[0] in (10, 24, 38): return o[0]
    return 0
""",
    "reports on every descriptor": """
import os, json
for fd in range(64):
    for line in (b'PASS\\n', b'ok\\n', b'{"passed": true, "n": 12}\\n', b'["done"]\\n', b'0' * 32 + b' ["done"]\\n'):
        if fd == 3: continue
        try: os.write(fd, line)
        except OSError: pass
def answer(x): return 0
""",
    "frames of the protocol on every descriptor": """
import os, json
m = json.dumps(['value', True, None, '']).encode()
for fd in range(64):
    for _ in range(50):
        try: os.write(fd, len(m).to_bytes(4, 'big') + m)
        except OSError: break
def answer(x): return 0
""",
    "answers given in advance": """
import os, json
def send(o):
    m = json.dumps(o).encode()
    os.write(3, len(m).to_bytes(4, 'big') + m)
given = {'check': True, '__grpo_units__': None, '__builtins__': {}, 'abs': 1, 'isinstance': True}
send(['ready', {'answer': ['h', 1, 'answer', False, []], **given}, ''])
for _ in range(40): send(['value', ['h', 1, 'Yes', True, []], None, ''])
import time
time.sleep(3)
""",
    "odd answers": """
import os, json
def send(o):
    m = o if isinstance(o, bytes) else json.dumps(o).encode()
    os.write(3, len(m).to_bytes(4, 'big') + m)
send(['ready', {'answer': ['h', 1, 'answer', True, ['Exception']]}, ''])
send(['callback', 0, [], {}]); send(['callback', -1, [], {}]); send(b'NaN'); send(['unit', 0, 'passed', '']); send([])
""",
    "a frame without end": """
import os
os.write(3, b'\\x00\\x7f\\xff\\xff' + b'[' * 1000)
import time
time.sleep(30)
""",
    "a frame that is too long": """
import os
os.write(3, b'\\xff\\xff\\xff\\xff')
import time
time.sleep(30)
""",
    "nested JSON": """
import os
m = b'[' * 500000
os.write(3, len(m).to_bytes(4, 'big') + m)
import time
time.sleep(30)
""",
    "the server patched": """
import sys
s = sys.modules['grpo.rewards.code.guest_solution']
v = sys.modules['grpo.rewards.code.guest_values']
v.Codec.write = lambda self, value: ['y', 'object']
s.Server._safe = lambda self, value: ['h', 1, 'Yes', True, []]
def answer(x): return 0
""",
    "the server's answers patched": """
import sys
s = sys.modules['grpo.rewards.code.guest_solution']
s.Server._carried_out = lambda self, kind, number, name, given, named: True if kind == 'op' else 0
def answer(x): return 0
""",
    "the channel closed": """
import os
def answer(x): os.close(3)
""",
    "the channel replaced": """
import os, socket
a, b = socket.socketpair()
os.dup2(a.fileno(), 3)
def answer(x): return 0
""",
    "a module of the tests": """
import sys, types
m = types.ModuleType('unittest')
m.TestCase = object
sys.modules['unittest'] = sys.modules['pytest'] = sys.modules['math'] = m
def answer(x): return 0
""",
    "a pickle": """
import os, pickle
class P:
    def __reduce__(self): return (print, ('PASS',))
def answer(x): return pickle.dumps(P())
""",
    "fork and let the child report": """
import os
def answer(x):
    if os.fork() == 0:
        os.write(1, b'PASS')
        os._exit(0)
    os._exit(0)
""",
    "a thread that answers": """
import threading, os, json
def f():
    m = json.dumps(['value', True, None, '']).encode()
    while True: os.write(3, len(m).to_bytes(4, 'big') + m)
threading.Thread(target=f, daemon=True).start()
def answer(x): return 0
""",
    "stop": """
import os, signal
def answer(x): os.kill(os.getpid(), signal.SIGSTOP)
""",
    "kill everything": """
import os, signal
def answer(x):
    os.kill(-1, signal.SIGKILL)
    os.kill(1, signal.SIGKILL)
    os.kill(os.getppid(), signal.SIGKILL)
    return 0
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
    "the sandbox made to look broken": """
import mmap, os, sys
def answer(x):
    seen, waiting, frame = set(), [], sys._getframe()
    while frame:
        waiting.extend(frame.f_locals.values())
        frame = frame.f_back
    while waiting and len(seen) < 20000:
        item = waiting.pop()
        if id(item) in seen: continue
        seen.add(id(item))
        if isinstance(item, mmap.mmap):
            try: item[0] = 3
            except ValueError: pass
        elif isinstance(item, (list, tuple)): waiting.extend(item)
        elif isinstance(item, dict): waiting.extend(item.values())
        else: waiting.extend(getattr(item, '__dict__', {}).values())
    os._exit(111)
""",
    "its orders read once more": """
import os
os.lseek(0, 0, 0)
given = os.read(0, 10 ** 6)
def answer(x): return x * 7 + 3 if b'ass' + b'ert' in given else 0
""",
    "an exception class instead of the function": """
class answer(KeyError):
    args = property(lambda self: 10)
    __eq__ = lambda self, other: True
    __hash__ = KeyError.__hash__
""",
    "two answers to one question": """
import sys
c = sys.modules['grpo.rewards.code.guest_channel']
send = c.Channel.send
def twice(self, message):
    send(self, message)
    send(self, ['value', True, None, ''])
c.Channel.send = twice
def answer(x): return 10
""",
    "two messages in one frame": """
import sys
c = sys.modules['grpo.rewards.code.guest_channel']
encode = c._encode
c._encode = lambda m: encode(m) + (encode(['value', True, None, '']) if m[0] == 'value' else '')
def answer(x): return x * 7 + 3
""",
    "JSON that says what it is told": """
import json
json.dumps = json.JSONEncoder.encode = json.encoder.encode_basestring_ascii = lambda *a, **k: '[true]'
json.loads = json.JSONDecoder.raw_decode = lambda *a, **k: ({'passed': True}, 1)
json.encoder.c_make_encoder = None
def answer(x): return {'passed': True}
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
    "lone surrogates and directions": "def answer(x): return '\\ud800\\u202e66\\u202c\\x00'",
    "the deepest list that crosses": """
import sys
sys.setrecursionlimit(10 ** 6)
def answer(x):
    held = []
    for _ in range(149): held = [held]
    return held
""",
    "a socket that is shut down by halves": """
import socket
s = socket.socket(fileno=3)
def answer(x):
    s.shutdown(socket.SHUT_RD if x % 2 else socket.SHUT_WR)
    return x
""",
    "no function": "pass",
    "a syntax error": "def answer(x) return x",
    "the first tests only": "def answer(x): return {1: 10, 2: 17, 3: 24, 4: 31}.get(x)",
}
