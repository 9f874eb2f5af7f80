"""Attacks on what belongs to others: files, devices, processes, the network, descriptors and the environment."""

from __future__ import annotations

from grpo.core.check.attacks import QUICK, SEVERAL, Attack, tried
from grpo.plugins.sandbox_job import JobOutcome

_FEIGNED: tuple[JobOutcome, ...] = ("exited", "signalled", "policy")

_SECRETS = (
    "/etc/shadow", "/etc/passwd", "/etc/hostname", "/root/.bashrc", "/root/.ssh/id_rsa", "/var/log", "/home",
    "/proc/1/environ", "/proc/self/environ", "/proc/self/mem", "/proc/self/maps", "/proc/kcore", "/proc/kallsyms",
    "/proc/sys/kernel/hostname", "/sys/kernel", "/sys/fs/cgroup", "/dev/mem", "/dev/kmem", "/dev/port", "/dev/sda",
    "/dev/vda", "/dev/nvme0n1", "/dev/kmsg", "/dev/fuse", "/dev/kvm", "/dev/tty", "/dev/console", "/dev/pts",
    "/run/docker.sock", "/var/run/docker.sock", "/run/secrets", "/boot", "/lib/modules",
)  # fmt: skip
_OPEN = "import os\ndef look(path): return os.listdir(path) if os.path.isdir(path) else open(path, 'rb').read(40)"
_WRITE = """
import os
def write(path):
    with open(path, 'ab') as file:
        file.write(b'x')
    return 'written'
"""
_SOCKETS = """
import socket
def connect(family, kind, address):
    s = socket.socket(family, kind)
    s.settimeout(1)
    s.connect(address)
    return 'connected'
"""
_NETWORK = (
    "connect(socket.AF_INET, socket.SOCK_STREAM, ('127.0.0.1', 22))",
    "connect(socket.AF_INET, socket.SOCK_STREAM, ('127.0.0.1', 80))",
    "connect(socket.AF_INET, socket.SOCK_STREAM, ('169.254.169.254', 80))",
    "connect(socket.AF_INET, socket.SOCK_DGRAM, ('127.0.0.1', 53))",
    "connect(socket.AF_INET6, socket.SOCK_STREAM, ('::1', 80))",
    "connect(socket.AF_UNIX, socket.SOCK_STREAM, '/var/run/docker.sock')",
    "connect(socket.AF_UNIX, socket.SOCK_STREAM, '\\0abstract')",
    "socket.socket(socket.AF_UNIX).bind('\\0grpo')",
    "socket.socket(socket.AF_INET).bind(('127.0.0.1', 0))",
    "socket.socket(16, socket.SOCK_RAW, 0)",  # netlink
    "socket.socket(17, socket.SOCK_RAW, 3)",  # packet
    "socket.socket(40, socket.SOCK_STREAM, 0)",  # vsock
    "socket.socket(38, socket.SOCK_SEQPACKET, 0)",  # alg
    "socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)",
    "socket.getaddrinfo('example.com', 80)",
    "socket.create_connection(('localhost', 80), 1)",
)

ACCESS = (
    Attack("secrets of the host", tried(_OPEN, *(f"look({path!r})" for path in _SECRETS))),
    Attack(
        "folders beyond the interpreter",
        "import os\nfor name in os.listdir('/'):\n"
        "    if name not in ('usr', 'lib', 'lib64', 'lib32', 'libx32', 'bin', 'sbin', 'tmp', 'dev', 'etc', 'opt',\n"
        "                    'proc', 'sys', 'root', 'home', 'var', 'run', 'mnt', 'media', 'srv', 'boot'):\n"
        "        print('BREACH', name)\nfor name in ('home', 'root', 'var', 'run', 'mnt', 'srv', 'boot'):\n"
        "    for folder, folders, files in os.walk('/' + name):\n"
        "        for file in files: print('BREACH', folder, file)",
    ),
    Attack(
        "writing outside the own folder",
        tried(
            _WRITE,
            "write('/x')",
            "write('/usr/x')",
            "write('/usr/bin/python3')",
            "write(os.__file__)",
            "write('/etc/passwd')",
            "write('/dev/shm/x')",
            "write('/proc/sys/kernel/core_pattern')",
            "write('/proc/sysrq-trigger')",
            "write('/sys/kernel/uevent_helper')",
            "write('/var/tmp/x')",
            "os.mkdir('/grpo')",
            "os.unlink(os.__file__)",
            "os.rename('/usr', '/usr2')",
            "os.chmod('/', 0o777)",
            "os.symlink('/etc/passwd', '/usr/link')",
            "os.link(os.__file__, '/usr/os2.py')",
        ),
    ),
    Attack("the network", tried(_SOCKETS, *_NETWORK)),
    Attack("the network where processes are allowed", tried(_SOCKETS, *_NETWORK), limits=SEVERAL),
    Attack(
        "descriptors that came along",
        "import os\nfor n in range(3, 4096):\n    try: print('BREACH', n, os.fstat(n))\n    except OSError: pass",
        ("exited",),
    ),
    Attack(
        "the environment",
        "import os\nfor name in os.environ:\n    if name.startswith('GRPO') or 'KEY' in name or 'TOKEN' in name:\n"
        "        print('BREACH', name)",
        ("exited",),
    ),
    Attack(
        "other processes",
        tried(
            "import os, signal",
            "[n for n in range(2, 5000) if n != os.getpid() and not os.kill(n, 0)][0]",
            "os.listdir('/proc')[0]",
            "os.kill(1, 0) and 1",
        ).replace("print('tried')", "os.kill(-1, 9) if os.getpid() != 1 else None"),
        ("exited", "signalled"),
    ),
    Attack(
        "starting other programs",
        tried(
            "import os, subprocess",
            "subprocess.run(['/bin/sh', '-c', 'true'])",
            "subprocess.run(['/usr/bin/python3', '-c', '1'])",
            "os.execv('/usr/bin/python3', ['python3', '-c', 'print(\"BREACH exec\")'])",
            "os.system('true') == 0 or None.x",
            "os.posix_spawn('/usr/bin/python3', ['python3'], {})",
        ),
    ),
    Attack(
        "links out of the own folder",
        "import os\nos.symlink('/etc/passwd', 'passwd')\nos.symlink('/', 'root')\nos.symlink('../../..', 'up')\n"
        "for path in ('passwd', 'root/etc/shadow', 'up/etc/passwd'):\n    try: print('BREACH', open(path).read(9))\n"
        "    except OSError: pass",
        ("exited",),
        then="import os\nprint('BREACH' if os.listdir('.') else 'clean')",
    ),
    Attack(
        "a failure of the sandbox, feigned",
        "import mmap, os, sys\nseen, waiting, frame = set(), [], sys._getframe()\n"
        "while frame:\n    waiting += frame.f_locals.values()\n    frame = frame.f_back\n"
        "while waiting and len(seen) < 20000:\n    item = waiting.pop()\n    if id(item) in seen: continue\n"
        "    seen.add(id(item))\n    if isinstance(item, mmap.mmap):\n        for value in (0, 1, 3, 255):\n"
        "            try: item[0] = value\n            except ValueError: pass\n"
        "    elif isinstance(item, (list, tuple)): waiting += item\n"
        "    else: waiting += (item if isinstance(item, dict) else getattr(item, '__dict__', {})).values()\n"
        "os.write(2, b'setup failed')\nos._exit(111)",
        ("exited", "memory", "compile_error"),
    ),
    *(
        Attack(f"a kill from outside, feigned by {name}{of}", f"import os, signal\n{program}", _FEIGNED, limits)
        for of, limits in (("", QUICK), (" of several processes", SEVERAL))
        for name, program in {
            "a kill": "os.kill(os.getpid(), 9)",
            "a kill of its group": "os.kill(0, 9)",
            "a raised signal": "signal.raise_signal(9)",
            "a child": "main = os.getpid()\nif os.fork() == 0:\n    os.kill(main, 9)\nsignal.sigtimedwait([1], 0.3)",
        }.items()
    ),
    Attack(
        "its output moved out of sight",
        "import fcntl, os\nos.lseek(1, 2**40, os.SEEK_SET)\nfcntl.fcntl(1, fcntl.F_SETFL, os.O_APPEND)\n"
        "os.lseek(2, -1, os.SEEK_END)\nos._exit(0)",
        ("exited", "output"),
    ),
)
