"""Attacks on the kernel: calls that no test needs, privileges, other namespaces, what is left between jobs."""

from __future__ import annotations

from grpo.core.check.attacks import ENDED, SEVERAL, Attack, tried

SETUP = """
import ctypes, os, platform
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    result = libc.syscall(ctypes.c_long(number), *arguments)
    if result < 0: raise OSError(ctypes.get_errno())
    return result
"""
# Numbers on x86_64; from 424 on they are the same everywhere.
FORBIDDEN = {
    "ptrace": "call(101, 0, 0, 0, 0)",
    "mount": "call(165, b'none', b'/tmp', b'tmpfs', 0, 0)",
    "umount": "call(166, b'/tmp', 2)",
    "chroot": "call(161, b'/tmp')",
    "pivot_root": "call(155, b'.', b'.')",
    "new user namespace": "call(272, 0x10000000)",
    "new mount namespace": "call(272, 0x20000)",
    "setns": "call(308, 0, 0)",
    "clone into a user namespace": "call(56, 0x10000011, 0, 0, 0, 0)",
    "bpf": "call(321, 0, 0, 0)",
    "io_uring": "call(425, 8, b'\\0' * 120)",
    "userfaultfd": "call(323, 1)",
    "perf_event_open": "call(298, b'\\0' * 120, 0, -1, -1, 0)",
    "keyctl": "call(250, 0, -3, 1)",
    "add_key": "call(248, b'user', b'x', b'y', 1, -2)",
    "open_by_handle_at": "call(304, -100, b'\\0' * 24, 0)",
    "name_to_handle_at": "call(303, -100, b'/', b'\\0' * 160, b'\\0' * 8, 0)",
    "memfd_secret": "call(447, 0)",
    "memfd_create": "call(319, b'x', 0)",
    "fsopen": "call(430, b'tmpfs', 0)",
    "open_tree": "call(428, -100, b'/', 1)",
    "mount_setattr": "call(442, -100, b'/', 0, b'\\0' * 32, 32)",
    "pidfd_open": "call(434, 1, 0)",
    "pidfd_getfd": "call(438, 0, 0, 0)",
    "process_vm_readv": "call(310, 1, 0, 0, 0, 0, 0)",
    "kexec_load": "call(246, 0, 0, 0, 0)",
    "init_module": "call(175, 0, 0, b'')",
    "reboot": "call(169, 0xfee1dead, 672274793, 0, 0)",
    "swapon": "call(167, b'/x', 0)",
    "iopl": "call(172, 3)",
    "acct": "call(163, b'/tmp/x')",
    "settimeofday": "call(164, 0, 0)",
    "clock_settime": "call(227, 0, b'\\0' * 16)",
    "sethostname": "call(170, b'x', 1)",
    "mknod of a device": "os.mknod('disk', 0o60600, os.makedev(254, 0))",
    "SysV shared memory": "call(29, 77, 4096, 0o1600)",
    "SysV semaphores": "call(64, 77, 1, 0o1600)",
    "SysV messages": "call(68, 77, 0o1600)",
    "POSIX messages": "call(240, b'/q', 0o102, 0o600, 0)",
    "inotify": "call(294, 0)",
    "fanotify": "call(300, 0, 0)",
    "quotactl": "call(179, 0, 0, 0, 0)",
    "syslog": "call(103, 3, b'\\0' * 100, 100)",
    "32-bit calls by x32": "call(0x40000000 + 39)",
    "setuid root": "os.setuid(0)",
    "setresuid root": "os.setresuid(0, 0, 0)",
    "setgroups": "os.setgroups([0])",
    "chown": "os.chown('.', 0, 0)",
    "nice": "os.setpriority(0, 0, -20)",
    "another namespace's capabilities": "call(126, b'\\x22\\x05\\x08\\x20\\0\\0\\0\\0', b'\\xff' * 24)",
    "a seccomp filter of its own": "call(317, 1, 0, 0)",
    "terminal input": "__import__('fcntl').ioctl(0, 0x5412, b'x')",
    "flock on a shared file": "__import__('fcntl').flock(open(os.__file__), 2)",
    "a lock on a shared file": "__import__('fcntl').lockf(open(os.__file__), 1)",
    "an open-file lock on a shared file": "__import__('fcntl').fcntl(open(os.__file__), 37, b'\\0' * 32)",
    "a lease on a shared file": "__import__('fcntl').fcntl(open(os.__file__), 1024, 0)",
    "scheduling": "os.sched_setscheduler(0, 1, os.sched_param(1))",
}
_LIMITS = """
import resource
def raised(kind):
    soft, hard = resource.getrlimit(kind)
    resource.setrlimit(kind, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    return soft, hard
"""
_RAISED = [f"raised(resource.RLIMIT_{name})" for name in ("AS", "CPU", "NPROC", "NOFILE", "FSIZE", "MEMLOCK")]

KERNEL_CALLS = (
    *(Attack(f"call: {name}", tried(SETUP, text)) for name, text in FORBIDDEN.items()),
    *(
        Attack(f"call: {name}, where processes are allowed", tried(SETUP, FORBIDDEN[name]), limits=SEVERAL)
        for name in ("new user namespace", "clone into a user namespace", "mount", "ptrace", "setns", "bpf", "io_uring")
    ),
    Attack("raising limits", tried(_LIMITS, *_RAISED)),
    Attack("killing everything", "import os\nos.kill(-1, 9)", ("exited", "signalled")),
    Attack("killing process 1", "import os\nfor n in range(1, 32): os.kill(1, n)", ENDED),
    Attack(
        "poisoned modules",
        "import json, builtins, sys, os\njson.loads = lambda text: 'BREACH'\nbuiltins.print = lambda *a: None\n"
        "sys.modules['math'] = None\nos.environ['LEFT'] = 'x'\nsys.path.insert(0, '/tmp')\n"
        "open('json.py', 'w').write('')",
        ("exited",),
        then="import json, math, os\nprint(json.loads('1'), 'BREACH' if 'LEFT' in os.environ else math.pi)",
    ),
    Attack(
        "files for the next job",
        "import os\nos.makedirs('.hidden/deep')\nopen('.hidden/deep/x', 'w').write('secret')\nos.chmod('.', 0o500)\n"
        "os.utime('.', (1, 1))",
        ("exited",),
        then="import os\ns = os.stat('.')\n"
        "left = os.listdir('.') or s.st_mtime < 10 or s.st_mode & 0o200 == 0\n"
        "print('BREACH' if left else 'clean')\nopen('mine', 'w').write('x')",
    ),
    Attack(
        "a secret in memory",
        "secret = 'grpo-' + 'residue-' * 1000\nkept = [secret + str(n) for n in range(100)]",
        ("exited",),
        then="import gc\nmark = 'residue' + '-residue'\nfor one in gc.get_objects():\n"
        "    if isinstance(one, dict) and mark in repr(one.get('kept'))[:200]: print('BREACH')",
    ),
    Attack(
        "frames of the caller",
        "import gc, sys\nframe = sys._getframe()\nwhile frame:\n    for name, value in frame.f_locals.items():\n"
        "        if 'expected' in name: print('BREACH', name, value)\n    frame = frame.f_back\nprint('walked')",
        ("exited",),
    ),
    Attack(
        "cleaning up after itself",
        "import atexit, os, sys\nsys.excepthook = lambda *a: os._exit(0)\natexit.register(os._exit, 0)\n1 / 0",
        ("exited",),
    ),
)
