"""Attacks on what the machine has: processor, memory, processes, descriptors, disk, output, the parser's stack."""

from __future__ import annotations

from grpo.core.check.attacks import ENDED, QUICK, SEVERAL, Attack
from grpo.plugins.sandbox_job import JobOutcome, Limits

_TIMED: tuple[JobOutcome, ...] = ("time_cpu", "time_wall")
_SMALL = Limits(cpu_seconds=3.0, wall_seconds=6.0, memory_bytes=128 * 2**20)
_LONG = Limits(cpu_seconds=1.0, wall_seconds=10.0)
_FAMILY = Limits(cpu_seconds=4.0, wall_seconds=8.0, memory_bytes=128 * 2**20, processes=8)

RESOURCES = (
    Attack("infinite loop", "while True: pass", ("time_cpu",)),
    Attack("sleep", "import time\ntime.sleep(1000)", ("time_wall",), Limits(wall_seconds=1.0)),
    Attack(
        "all signals ignored",
        "import signal\nfor n in range(1, 65):\n    try: signal.signal(n, signal.SIG_IGN)\n    except OSError: pass\n"
        "    except ValueError: pass\nwhile True: pass",
        ("time_cpu",),
    ),
    Attack(
        "stop yourself",
        "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)\nprint('goes on')",
        ("time_wall", "exited"),
        Limits(wall_seconds=1.0),
    ),
    Attack("fork bomb", "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass", _TIMED),
    Attack(
        "fork bomb where some processes are allowed",
        "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
        _TIMED,
        SEVERAL,
    ),
    Attack(
        "more processes than allowed",
        "import os, time\ncount = 1\nfor _ in range(50):\n    try:\n        if os.fork() == 0: time.sleep(60)\n"
        "        count += 1\n    except OSError: break\nif count > 8: print('BREACH', count)\nos._exit(0)",
        ("exited", "time_wall"),
        SEVERAL,
    ),
    Attack(
        "thread bomb",
        "import threading, time\nwhile True:\n    try: threading.Thread(target=time.sleep, args=(99,)).start()\n"
        "    except RuntimeError: pass",
        _TIMED,
        SEVERAL,
    ),
    Attack(
        "surviving threads",
        "import threading, time\nfor _ in range(4): threading.Thread(target=time.sleep, args=(99,)).start()",
        ("time_wall",),
        Limits(wall_seconds=1.0, processes=8),
    ),
    Attack(
        "daemons",
        "import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        time.sleep(2)\n"
        "        print('BREACH survived')\n    os._exit(0)\nprint('left', flush=True)\nos._exit(0)",
        ("exited",),
        SEVERAL,
        then="import time\ntime.sleep(0.2)\nprint('next')",
    ),
    Attack("memory", "x = []\nwhile True: x.append(bytearray(2**20))", ("memory",), _SMALL),
    Attack("memory in one piece", "x = bytearray(2**34)", ("memory",), _SMALL),
    Attack("memory of a long list", "x = [0] * 2**40", ("memory",), _SMALL),
    Attack(
        "memory that is caught and asked for again",
        "x = []\nwhile True:\n    try: x.append(bytearray(2**20))\n    except MemoryError: x = x",
        ("memory", "time_cpu"),
        Limits(cpu_seconds=0.6, wall_seconds=5.0, memory_bytes=128 * 2**20),
    ),
    Attack(
        "shared memory mappings",
        "import mmap\nx = []\nwhile True:\n    m = mmap.mmap(-1, 2**24); m[::4096] = b'x' * 4096; x.append(m)\n"
        "    if len(x) > 32: print('BREACH', len(x)); break",
        ENDED,
        _SMALL,
    ),
    Attack(
        "memory files",
        "import os\nfor _ in range(50):\n    f = os.memfd_create('x')\n    os.write(f, b'x' * 2**24)\nprint('BREACH')",
        ENDED,
        _SMALL,
    ),
    Attack(
        "memory split over children",
        "import os, time\nchildren = []\nfor _ in range(6):\n    children.append(os.fork())\n"
        "    if children[-1] == 0:\n        x = bytearray(b'x') * (80 * 2**20)\n        time.sleep(1.0)\n"
        "        os._exit(7)\nheld = [os.waitpid(child, 0)[1] for child in children].count(7 << 8)\n"
        "if held > 4: print('BREACH', held)",
        ("exited", "memory", "signalled", "time_wall"),
        _FAMILY,
        needs="cgroup memory",
    ),
    Attack("stdout flood", "import os\nwhile True: os.write(1, b'x' * 65536)", ("output",)),
    Attack("stderr flood", "import os\nwhile True: os.write(2, b'x' * 65536)", ("output",)),
    Attack(
        "flood that ignores errors",
        "import os\nwhile True:\n    try: os.write(1, b'x' * 65536)\n    except OSError: pass",
        ("output",),
    ),
    Attack(
        "a file of 4 GB",
        "import os\nf = open('big', 'wb')\ntotal = 0\ntry:\n    while total < 2**32: total += f.write(b'x' * 2**20)\n"
        "finally:\n    if total > 2**27: print('BREACH', total)",
        (*ENDED, "time_cpu", "time_wall"),
        _LONG,
        then="import os\nprint('BREACH' if os.listdir('.') else 'clean')",
    ),
    Attack(
        "200,000 files",
        "n = 0\ntry:\n    while n < 200_000:\n        open(str(n), 'x').close(); n += 1\nfinally:\n"
        "    if n > 20_000: print('BREACH', n)",
        (*ENDED, "time_cpu"),
        _LONG,
        then="import os\nprint('BREACH' if os.listdir('.') else 'clean')",
    ),
    Attack(
        "every descriptor",
        "import os\nx = []\nwhile len(x) < 5000: x.append(os.open('/', os.O_RDONLY))\nprint('BREACH')",
        ENDED,
    ),
    Attack("close every descriptor", "import os\nos.closerange(0, 4096)\nos._exit(0)", ("exited",)),
    Attack(
        "write to every descriptor",
        "import os\nfor n in range(3, 4096):\n    for text in (b'PASS', b'stop', b'{\"ready\": 1}', b'\\0' * 40):\n"
        "        try: os.write(n, text)\n        except OSError: pass",
        ("exited",),
    ),
    Attack(
        "deep recursion",
        "import sys\nsys.setrecursionlimit(10**9)\ndef f(): return f()\nf()",
        ("signalled", "memory", "time_cpu", "exited"),
        _LONG,
    ),
    Attack(
        "deep recursion in C",
        "import sys\nsys.setrecursionlimit(10**9)\nclass A:\n    def __repr__(self): return repr([self])\nrepr(A())",
        ("signalled", "memory", "time_cpu", "exited"),
        _LONG,
    ),
    Attack("segmentation fault", "import ctypes\nctypes.string_at(0)", ("signalled",)),
    Attack("surrogates", "print('\\ud800')", ("exited",)),
    Attack("bytes that are no text", "import os\nos.write(1, bytes(range(256)))", ("exited",)),
    Attack("a program with NUL", "x = 1\0", ("compile_error",)),
    Attack("surrogates in a program", "x = '\ud800'", ("compile_error",)),
    Attack("200,000 parentheses", "(" * 200_000 + ")" * 200_000, ("compile_error", "signalled", "memory"), _LONG),
    Attack("a program of 12 MB", "x = 1\n" * 2_000_000, (*ENDED, "time_cpu"), _LONG),
    Attack("a power too far", "x = 10 ** 10 ** 9\nprint(len(str(x)))", ("time_cpu", "memory", "exited"), QUICK),
    Attack(
        "processor time of many threads",
        "import threading\ndef f():\n    while True: pass\nfor _ in range(6): threading.Thread(target=f).start()",
        _TIMED,
        SEVERAL,
    ),
    Attack(
        "processor time of children",
        "import os\nfor _ in range(6):\n    if os.fork() == 0:\n        while True: pass\nwhile True: pass",
        _TIMED,
        SEVERAL,
    ),
)
