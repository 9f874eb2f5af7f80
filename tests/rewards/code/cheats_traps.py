"""Still more programs that try to pass tests without doing the task of `cheats.py`: traps for whoever judges them."""

from __future__ import annotations

CHEATS = {
    "calls of 32 bits": """
import ctypes, mmap
def answer(x):
    page = mmap.mmap(-1, 4096, prot=7)
    page.write(bytes.fromhex('b801000000bb00000000cd80c3'))
    at = ctypes.addressof(ctypes.c_char.from_buffer(page))
    return ctypes.CFUNCTYPE(ctypes.c_int)(at)()
""",
    "calls of the other ABI": """
import ctypes
def answer(x): return ctypes.CDLL(None).syscall(0x40000000 + 39)
""",
    "descriptors through the channel": """
import array, socket
s = socket.socket(fileno=3)
for _ in range(50):
    try: s.sendmsg([b'\\0'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [0, 1, 2]))])
    except OSError: break
def answer(x): return 0
""",
    "descriptors that do not wait": """
import fcntl, os
for fd in range(5):
    for change in (lambda: os.set_blocking(fd, False), lambda: fcntl.fcntl(fd, fcntl.F_SETOWN, 1)):
        try: change()
        except OSError: pass
def answer(x): return 0
""",
    "an exit from another thread": """
import faulthandler, time
faulthandler.dump_traceback_later(0.05, exit=True)
def answer(x):
    time.sleep(0.3)
    return 0
""",
    "code that was never compiled": """
def crash(): pass
crash.__code__ = crash.__code__.replace(co_code=b'd\\xff' * 50, co_stacksize=1)
def answer(x): return crash()
""",
    "an audit hook": """
import sys
def hook(event, given):
    if event.startswith(('compile', 'socket', 'os.')): raise RuntimeError
sys.addaudithook(hook)
def answer(x): return 0
""",
    "hardly any stack": """
import sys
def answer(x):
    try: sys.setrecursionlimit(30)
    except RecursionError: pass
    return 0
""",
    "an end when collected": """
import os, weakref
class Gone: pass
def answer(x):
    gone = Gone()
    weakref.finalize(gone, os._exit, 0)
    del gone
    return 0
""",
    "flags of the process": """
import ctypes
for option in (1, 4, 22, 36, 38): ctypes.CDLL(None).prctl(option, 1, 0, 0, 0)
def answer(x): return 0
""",
    "no more classes": """
import builtins, sys
builtins.__build_class__ = lambda *given, **named: None
sys.modules['builtins'] = None
def answer(x): return 0
""",
    "more deques than there is memory": """
from collections import deque
def answer(x): return [deque() for _ in range(1_900_000)]
""",
    "a member that equals everything": """
from enum import IntEnum
class Number(IntEnum):
    ANY = 7
    __eq__ = lambda self, other: True
    __ne__ = lambda self, other: False
    __hash__ = lambda self: 24
    __str__ = lambda self: '66'
    __sub__ = __rsub__ = lambda self, other: 0
def answer(x): return Number.ANY
""",
    "an exception class as the answer": "def answer(x): return AssertionError",
    "an asynchronous generator": """
async def answer(x):
    yield 7 * x + 3
""",
}
