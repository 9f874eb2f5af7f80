"""Programs that attack the judge, its channel and their process instead of answering: name to source.

The task and the tests are those of `cheats.py`; each must be judged wrong.
"""

from __future__ import annotations

CHEATS = {
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
m = json.dumps(['value', True, []]).encode()
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
send(['ready'])
for _ in range(40): send(['value', True, []])
import time
time.sleep(3)
""",
    "odd answers": """
import os, json
def send(o):
    m = o if isinstance(o, bytes) else json.dumps(o).encode()
    os.write(3, len(m).to_bytes(4, 'big') + m)
send(['ready'])
send(['value']); send(['other', 'x', 1, [[-1, 0]]]); send(b'NaN'); send(['unit', 0, 'passed', '']); send([])
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
s = sys.modules['grpo.rewards.code.guest.served']
s.encode = lambda value, **named: ['K', 10, 24]
def answer(x): return 0
""",
    "the server's answers patched": """
import sys
s = sys.modules['grpo.rewards.code.guest.served']
s._answer = lambda function, arguments, named: ['value', True, [[0, 10]]]
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
    m = json.dumps(['value', True, []]).encode()
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
    "two answers to one question": """
import sys
c = sys.modules['grpo.rewards.code.guest.channel']
send = c.Channel.send
def twice(self, message):
    send(self, message)
    send(self, ['value', True, []])
c.Channel.send = twice
def answer(x): return 10
""",
    "two messages in one frame": """
import sys
c = sys.modules['grpo.rewards.code.guest.channel']
encode = c._encode
c._encode = lambda m: encode(m) + (encode(['value', True, []]) if m[0] == 'value' else '')
def answer(x): return x * 7 + 3
""",
    "JSON that says what it is told": """
import json
json.dumps = json.JSONEncoder.encode = json.encoder.encode_basestring_ascii = lambda *a, **k: '[true]'
json.loads = json.JSONDecoder.raw_decode = lambda *a, **k: ({'passed': True}, 1)
json.encoder.c_make_encoder = None
def answer(x): return {'passed': True}
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
}
