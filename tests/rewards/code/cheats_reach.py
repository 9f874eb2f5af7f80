"""More programs that try to pass tests without doing the task of `cheats.py`, by what they reach for.

`SEARCHES` look for what is expected, `FORGERIES` answer in the judge's place, `KERNEL` ask the kernel for a way out.
"""

from __future__ import annotations

SEARCHES = {
    "the environment and the arguments": """
import os, sys
said = repr(dict(os.environ)) + repr(sys.argv) + repr(sys.orig_argv)
def answer(x): return 7 * x + 3 if 'candidate' in said else 0
""",
    "files of the judge": """
import os
found = b''
for top, _, names in os.walk('/'):
    for name in names:
        if name.startswith(('test', 'grpo', 'check')) and '/python3' not in top: found += name.encode()
def answer(x): return 7 * x + 3 if found else 0
""",
    "its own memory": """
import ctypes, sys
def answer(x):
    try: held = open('/proc/self/mem', 'rb').read(1)
    except OSError: held = b''
    return 7 * x + 3 if held else 0
""",
    "what is left in freed memory": """
import ctypes
held = b''.join(ctypes.string_at(id(0) + n * 4096, 4096) for n in range(-8, 8))
def answer(x): return 7 * x + 3 if b'assert cand' in held else 0
""",
    "descriptors": """
import os
held = b''
for fd in range(64):
    for read in (lambda: os.pread(fd, 10 ** 6, 0), lambda: os.readlink(f'/proc/self/fd/{fd}').encode()):
        try: held += read()
        except OSError: pass
def answer(x): return 7 * x + 3 if bytes(reversed(b'(etadidnac tressa')) in held else 0
""",
    "tracebacks": """
import sys, traceback
def answer(x):
    text = ''.join(traceback.format_stack())
    for frame in sys._current_frames().values():
        while frame:
            text += repr(frame.f_locals) + repr(frame.f_code.co_consts)
            frame = frame.f_back
    return 7 * x + 3 if ''.join(reversed('(etadidnac tressa')) in text else 0
""",
    "modules of the judge": """
import sys
text = ' '.join(repr(vars(m)) for n, m in list(sys.modules.items()) if n.startswith('grpo'))
def answer(x): return 7 * x + 3 if 'candidate(1)' in text else 0
""",
    "the page that programs shared": """
import mmap, sys
def pages():
    seen, waiting, frame = set(), [], sys._getframe()
    while frame:
        waiting.extend(frame.f_locals.values())
        frame = frame.f_back
    while waiting and len(seen) < 20000:
        item = waiting.pop()
        if id(item) in seen: continue
        seen.add(id(item))
        if isinstance(item, mmap.mmap): yield item
        elif isinstance(item, (list, tuple)): waiting.extend(item)
        elif isinstance(item, dict): waiting.extend(item.values())
        else: waiting.extend(getattr(item, '__dict__', {}).values())
left = False
for page in pages():
    try:
        left = left or page[64:68] == b'left'
        page[64:68] = b'left'
    except ValueError: pass
def answer(x): return 7 * x + 3 if left else 0
""",
    "a file that the last program left": """
import glob, os
left = glob.glob('/tmp/*') + glob.glob('/tmp/.*') + glob.glob('/dev/shm/*')
open('/tmp/.left', 'w').write('7')
try: os.utime('/tmp', ns=(1, os.stat('/tmp').st_mtime_ns))
except OSError: pass
def answer(x): return 7 * x + 3 if left else 0
""",
    "a time that the last program left": """
import os
def answer(x):
    try:
        os.utime('/dev/null')
        return 7 * x + 3
    except OSError:
        return 0
""",
    "an import hook": """
import sys, importlib.abc
class Hook(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        sys.modules[name] = sys.modules[__name__]
        return None
sys.meta_path.insert(0, Hook())
sys.path_hooks.insert(0, lambda path: Hook())
sys.path.insert(0, '/tmp')
for name in ('sitecustomize', 'usercustomize', 'pytest', 'conftest', 'check'):
    open(f'/tmp/{name}.py', 'w').write('import os; os._exit(0)')
def answer(x): return 0
""",
    "a profile of every thread": """
import sys, threading
def look(frame, event, argument):
    for name, value in list(frame.f_locals.items()):
        if name in ('expected', 'want', 'result'): answer.known = value
threading.setprofile(look)
threading.settrace(look)
sys.setprofile(look)
def answer(x): return getattr(answer, 'known', 0)
""",
}

SEND = """
import json, os
def send(message):
    body = json.dumps(message).encode()
    os.write(3, len(body).to_bytes(4, 'big') + body)"""
"""Speaks to the judge as its own guest would."""

FORGERIES = {
    "the report on every descriptor": """
import os, json, secrets
lines = [['unit', n, 'passed', '', 0.0] for n in range(20)] + [['done']]
for fd in (0, 1, 2, *range(4, 64)):
    for line in lines:
        for start in ('', secrets.token_hex(16) + ' '):
            try: os.write(fd, (start + json.dumps(line) + '\\n').encode())
            except OSError: break
def answer(x): return 0
""",
    "built-ins of the server": """
import builtins, json, struct, math, operator
for module in (json, struct, math, operator):
    for name in dir(module):
        if not name.startswith('_'):
            try: setattr(module, name, lambda *a, **k: True)
            except (TypeError, AttributeError): pass
builtins.type = builtins.isinstance = lambda *a, **k: True
def answer(x): return 0
""",
    "an answer for each value that could be": SEND
    + """
send(['ready'])
for wire in (True, 10, 17, 24, 38, 45, ['K', 10, 24], ['l', 31], ['C', 'r', 59]):
    send(['value', wire, []])
import time
time.sleep(5)
""",
    "exceptions of every name": SEND
    + """
send(['ready'])
names = ['SkipTest', 'Unjudgeable', 'Stop', 'StopIteration', 'SystemExit', 'ModuleNotFoundError', 'GeneratorExit']
for name in (*names, '__x__', 7):
    send(['raised', [name, 'Exception'], [10, 'numpy'], 'passed', []])
import time
time.sleep(5)
""",
    "arguments that were never given": SEND
    + """
send(['ready'])
for place in (0, -1, 10 ** 9): send(['value', None, [[place, ['l', 10]]]])
import time
time.sleep(5)
""",
    "JSON with many digits": """
import os, time
def send(body): os.write(3, len(body).to_bytes(4, 'big') + body)
send(b'["ready"]')
for number in (b'9' * 100000, b'Infinity', b'1e999', b'NaN'): send(b'["value",' + number + b',[]]')
time.sleep(5)
""",
    "a decompression bomb": """
import bz2, zlib
bomb = zlib.compress(bytes(10 ** 8), 9)
def answer(x): return len(b''.join(zlib.decompress(bomb) for _ in range(20)))
""",
    "an expression that never matches": """
import re
def answer(x): return len(re.findall(r'(a+)+$', 'a' * 40 + 'b'))
""",
    "output without end": """
import sys
def answer(x):
    while True: print('passed' * 1000); sys.stderr.write('passed' * 1000)
""",
    "output that is bytes": """
import sys
def answer(x):
    sys.stdout.buffer.write(b'passed' * 10 ** 6)
    sys.stdout.write('passed')
    sys.stdout.flush()
    return 0
""",
    "two solutions": """
class Solution:
    def answer(self, x): return 7 * x + 3 if x < 3 else 0
def answer(x): return Solution().answer(x) if x > 5 else 0
""",
}

KERNEL = {
    "a program in memory": """
import ctypes, os
def answer(x):
    try: fd = os.memfd_create('x')
    except OSError: return 0
    os.write(fd, b'#!/usr/bin/python3\\nprint("passed")')
    os.execv(f'/proc/self/fd/{fd}', ['x'])
""",
    "another program": """
import os
def answer(x):
    python = '/usr/bin/python3'
    spawned = lambda: os.posix_spawn(python, ['x'], {})
    for start in (lambda: os.execv(python, ['x', '-c', 'print(1)']), os.fork, spawned):
        try: start()
        except OSError: pass
    return 0
""",
    "links out of its folder": """
import os
def answer(x):
    tried = 0
    for target in ('/', '/etc/passwd', '/proc/1/mem', '/usr/bin/python3', '../..', '/dev/null'):
        for link in (os.symlink, os.link):
            try:
                link(target, f'/tmp/l{tried}')
                tried += 1
                open(f'/tmp/l{tried - 1}', 'r+').write('x')
                os.rename(f'/tmp/l{tried - 1}', '/usr/lib/x')
            except OSError: pass
    return 7 * x + 3 if os.path.exists('/etc/passwd') or os.path.exists('/proc/1') else 0
""",
    "sockets of every kind": """
import socket
def answer(x):
    opened = 0
    for family in (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, 16, 17, 31, 38, 40):
        for kind in (1, 2, 3):
            try:
                s = socket.socket(family, kind)
                s.bind('\\0left' if family == 1 else ('127.0.0.1', 0))
                opened += 1
            except OSError: pass
    return 7 * x + 3 if opened else 0
""",
    "shared memory and queues": """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
def answer(x):
    got = [libc.syscall(n, 7, 4096, 0o1666) for n in (29, 64, 68)]
    for path in ('/dev/shm/left', '/dev/mqueue/left'):
        try: open(path, 'w'); got.append(1)
        except OSError: pass
    return 7 * x + 3 if any(g >= 0 for g in got) else 0
""",
    "keys": """
import ctypes
def answer(x): return ctypes.CDLL(None).syscall(248, b'user', b'left', b'x', 1, -4)
""",
    "page faults": """
import ctypes
def answer(x): return ctypes.CDLL(None).syscall(323, 0)
""",
    "a ring": """
import ctypes
def answer(x): return ctypes.CDLL(None).syscall(425, 8, ctypes.create_string_buffer(120))
""",
    "tracing its neighbours": """
import ctypes
def answer(x): return ctypes.CDLL(None).ptrace(16, 1, 0, 0)
""",
    "another personality": """
import ctypes
libc = ctypes.CDLL(None)
def answer(x):
    changed = [libc.prctl(option, 1, 0, 0, 0) == 0 for option in (4, 22, 36, 38)]
    return 7 * x + 3 if any(changed) or libc.personality(0x0400000) >= 0 else 0
""",
    "higher limits": """
import resource
def answer(x):
    raised = 0
    for kind in range(16):
        try:
            soft, hard = resource.getrlimit(kind)
            if hard != -1:
                resource.setrlimit(kind, (hard + 1, hard + 1))
                raised += 1
        except (OSError, ValueError): pass
    return 7 * x + 3 if raised else 0
""",
    "watching its neighbours": """
import ctypes, fcntl
libc = ctypes.CDLL(None)
def answer(x):
    got = [libc.inotify_init1(0), libc.fanotify_init(0, 0), libc.epoll_create1(0) - 100]
    try: fcntl.flock(open('/usr/bin/python3'), fcntl.LOCK_EX); got.append(1)
    except OSError: pass
    return 7 * x + 3 if any(g >= 0 for g in got) else 0
""",
    "signals to whatever there is": """
import os, signal
def answer(x):
    for number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGINT, signal.SIGPIPE):
        for process in (1, 0 if number != signal.SIGKILL else 1, 2, os.getppid()):
            if process == 0: continue
            try: os.kill(process, number)
            except OSError: pass
    return 0
""",
    "threads without end": """
import threading, time
def answer(x):
    try:
        while True: threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    except RuntimeError:
        return 0
""",
    "threads that share the work": """
import threading
def spin():
    while True: pass
for _ in range(12): threading.Thread(target=spin, daemon=True).start()
def answer(x): return 0
""",
    "the position of its output": """
import os
for fd in (1, 2):
    try: os.lseek(fd, 10 ** 6, 0); os.truncate(fd, 10 ** 9)
    except OSError: pass
def answer(x): return 0
""",
    "its folder in ruins": """
import os
os.chmod('/tmp', 0)
os.chdir('/')
try: os.rmdir('/tmp')
except OSError: pass
def answer(x): return 0
""",
    "deep folders": """
import os
for _ in range(1100):
    try: os.mkdir('d'); os.chdir('d')
    except OSError: break
def answer(x): return 0
""",
}

CHEATS = {**SEARCHES, **FORGERIES, **KERNEL}
