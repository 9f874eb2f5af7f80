"""Compiles the list of permitted system calls to a classic BPF filter for the kernel.

Theory of operation: the filter is an allow-list. What is not on it answers EPERM, so that an honest program sees an
ordinary error. A few calls that no honest program makes (`DEADLY`) end the process with SIGSYS, which is reported as
"policy". Some calls are judged by their arguments: no terminal input through ioctl, no new namespaces through clone.

Two programs could signal each other through a lock on a shared file. A lock of fcntl keeps out other processes, and a
program alone has none that sees its files: it is told that it has the lock, as databases want, and nothing is locked.
Programs of several processes, and locks of other kinds, get EPERM.

No program can have its own process ended by SIGKILL, directly, by a child, or by a limit that it sets itself. So a
SIGKILL came from outside: the machine ran out of memory, or somebody ended it.

This module runs inside the sandbox and imports the standard library only.
"""

from __future__ import annotations

import struct

from grpo.plugins.kernel import FilterProgram
from grpo.rewards.sandbox.inside.syscall_numbers import audit_number, known_architecture, numbers

Code = tuple[bytes, ...]

ALLOWED = """
    read write readv writev pread64 pwrite64 preadv pwritev open openat close close_range fstat newfstatat stat
    lstat statx lseek mmap mprotect munmap brk mremap madvise msync rt_sigaction rt_sigprocmask rt_sigreturn
    rt_sigpending rt_sigtimedwait rt_sigsuspend sigaltstack access faccessat faccessat2 pipe pipe2 select
    pselect6 poll ppoll epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_create eventfd2 eventfd sched_yield
    nanosleep clock_nanosleep getitimer setitimer alarm pause dup dup2 dup3 fsync fdatasync truncate ftruncate
    getdents64 getdents getcwd chdir fchdir rename renameat renameat2 mkdir mkdirat rmdir creat unlink unlinkat
    symlink symlinkat link linkat readlink readlinkat chmod fchmod fchmodat umask gettimeofday getrlimit
    getrusage sysinfo times getuid getgid geteuid getegid getpid gettid getppid getpgrp getpgid getsid
    getgroups getresuid getresgid uname arch_prctl set_tid_address set_robust_list get_robust_list futex rseq
    exit exit_group wait4 waitid getcpu sched_getaffinity sched_getparam sched_getscheduler
    sched_get_priority_max sched_get_priority_min clock_gettime clock_getres time getrandom
    statfs fstatfs utimensat utime utimes futimesat fadvise64 copy_file_range sendfile sendto recvfrom shutdown
    getsockname getpeername getsockopt setsockopt membarrier restart_syscall getpriority fallocate
    sync_file_range capget
"""
# For programs that may start others; a program alone gets EPERM.
STARTING = """
    fork vfork execve execveat setsid sched_setaffinity
"""
DEADLY = """
    ptrace process_vm_readv process_vm_writev mount umount2 pivot_root chroot setns unshare bpf io_uring_setup
    io_uring_enter io_uring_register userfaultfd perf_event_open keyctl add_key request_key init_module
    finit_module delete_module kexec_load kexec_file_load reboot swapon swapoff open_by_handle_at
    name_to_handle_at memfd_secret fsopen fsmount fsconfig fspick open_tree move_mount mount_setattr pidfd_getfd
    iopl ioperm acct quotactl syslog settimeofday clock_settime adjtimex clock_adjtime sethostname setdomainname
    seccomp landlock_create_ruleset landlock_add_rule landlock_restrict_self kcmp lookup_dcookie modify_ldt
    vhangup
"""
_NAMESPACES, _THREAD = 0x7E020080, 0x00010000
_IOCTLS = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)  # TCGETS TIOCGWINSZ FIONREAD FIONBIO FIONCLEX FIOCLEX
_FCNTLS = (0, 1, 2, 3, 4, 1030, 1032)  # DUPFD GETFD SETFD GETFL SETFL DUPFD_CLOEXEC GETPIPE_SZ
_LOCKS = (6, 7)  # SETLK SETLKW
_PRCTLS = (1, 3, 15, 16)  # SET_PDEATHSIG GET_DUMPABLE SET_NAME GET_NAME
_AF_UNIX, _AF_VSOCK = 1, 40  # the latter reaches the host of a virtual machine, whatever the network namespace
_SIGKILL, _RLIMIT_CPU = 9, 0
_MAIN = 0x5A3C96E1  # stands for the program's own process where its number is not known yet
_EVERYTHING = 0xFFFFFFFF  # -1: every process that there is
_EPERM, _ENOSYS, _ENOTSUP = 1, 38, 95
# What `shutil` takes for a file system that has none.
EXTENDED_ATTRIBUTES = """
    getxattr lgetxattr fgetxattr listxattr llistxattr flistxattr setxattr lsetxattr fsetxattr
"""

_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_LOAD, _JUMP, _JUMP_EQ, _JUMP_GE, _AND, _RETURN = 0x20, 0x05, 0x15, 0x35, 0x54, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_X32 = 0x40000000
_FARTHEST = 255  # instructions that a condition can skip


# What the agent of a container needs beside the calls of programs, to make sandboxes in it.
MAKING = """
    unshare mount umount2 pivot_root open_tree move_mount mount_setattr landlock_create_ruleset landlock_add_rule
    landlock_restrict_self seccomp ioctl fcntl prctl socketpair clone clone3 capset setresuid setresgid setuid
    setgid setgroups memfd_create pidfd_open pidfd_send_signal sendmsg recvmsg sched_setaffinity
"""

# Of `DEADLY`, what programs of a session may need: emulators, and programs that confine themselves.
HARMLESS = """
    process_vm_readv chroot modify_ldt kcmp seccomp landlock_create_ruleset landlock_add_rule landlock_restrict_self
"""
_ATTACH, _SEIZE = 16, 0x4206  # a debugger may trace what it starts, not what runs, such as a grader

# Calls that are allowed or not by their arguments, and that the agent needs too.
JUDGED = """
    kill tkill tgkill setrlimit prlimit64 setpgid
"""


class Filters:
    """The filters of one zygote, for a program alone, with threads, or that replaces it; None without seccomp."""

    __slots__ = ("_starting", "alone", "replaced", "threading")

    def __init__(self, available: bool) -> None:
        self.alone = _installable(filter_code()) if available else None
        self.threading = _installable(filter_code(threads=True)) if available else None
        self.replaced = _installable(filter_code("execve")) if available else None
        self._starting = filter_code(STARTING) if available else b""

    def starting(self, main: int) -> FilterProgram | None:
        """Returns the filter of a program whose process `main` may start threads and processes."""
        code = self._starting
        for sign in (1, -1):
            code = code.replace(_number(sign * _MAIN), _number(sign * main))
        return _installable(code) if code else None


def _installable(code: bytes) -> FilterProgram:
    return FilterProgram(len(code) // 8, code)


def filter_code(more: str = "", *, threads: bool = False) -> bytes:
    """Returns the instructions of a filter that allows `more` beside `ALLOWED`."""
    judged: dict[int, Code] = dict.fromkeys(numbers(f"{ALLOWED} {more}"), (_op(_RETURN, _ALLOW),))
    judged |= _kills(several=more == STARTING)
    judged |= dict.fromkeys(numbers(DEADLY), (_op(_RETURN, _KILL),))
    for name, argument, values in (
        ("ioctl", 1, _IOCTLS),
        ("prctl", 0, _PRCTLS),
        ("socketpair", 0, (_AF_UNIX,)),
    ):
        judged |= dict.fromkeys(numbers(name), (_load(argument), *_any_of(values)))
    alone = more != STARTING
    locked = tuple(code for lock in _LOCKS if alone for code in _unless(lock, _ERRNO))  # an error of 0 is none
    judged |= dict.fromkeys(numbers("fcntl"), (_load(1), *locked, *_any_of(_FCNTLS)))
    if threads or more == STARTING:
        kinds = (_THREAD,) if threads else (0, _THREAD)
        # The low byte is the signal that the parent gets when the child ends.
        last = (_load(0), _op(_AND, 0xFF), *_unless(_SIGKILL, _ERRNO | _EPERM))
        clone = (*last, _load(0), _op(_AND, _NAMESPACES | _THREAD), *_any_of(kinds))
        judged |= dict.fromkeys(numbers("clone"), clone)
    # The flags of clone3 are out of sight; the C library then uses clone.
    judged |= dict.fromkeys(numbers("clone3"), (_op(_RETURN, _ERRNO | _ENOSYS),))
    judged |= dict.fromkeys(numbers(EXTENDED_ATTRIBUTES), (_op(_RETURN, _ERRNO | _ENOTSUP),))
    return _judging(judged, _op(_RETURN, _ERRNO | _EPERM))


def session_filter() -> FilterProgram | None:
    """Returns the filter of a session's programs, None on an unknown machine: it refuses the calls of no honest one."""
    if not known_architecture():
        return None
    refused = numbers(DEADLY)
    judged: dict[int, Code] = dict.fromkeys(refused, (_op(_RETURN, _ERRNO | _EPERM),))
    for number in numbers(HARMLESS):
        del judged[number]
    taken = (code for request in (_ATTACH, _SEIZE) for code in _unless(request, _ERRNO | _EPERM))
    judged |= dict.fromkeys(numbers("ptrace"), (_load(0), *taken, _op(_RETURN, _ALLOW)))
    judged |= dict.fromkeys(numbers("socket"), (_load(0), *_unless(_AF_VSOCK, _ERRNO | _EPERM), _op(_RETURN, _ALLOW)))
    return _installable(_judging(judged, _op(_RETURN, _ALLOW)))


def _judging(judged: dict[int, Code], otherwise: bytes) -> bytes:
    """The instructions that judge each call as told, all others alike, and other architectures' calls as deadly."""
    code = [
        _op(_LOAD, _ARCHITECTURE),
        _op(_JUMP_EQ, audit_number(), 1, 0),
        _op(_RETURN, _KILL),
        _op(_LOAD, _NUMBER),
        _op(_JUMP_GE, _X32, 0, 1),
        _op(_RETURN, _KILL),
        *_searched(_segments(judged, otherwise)),
    ]
    return b"".join(code)


def _kills(*, several: bool) -> dict[int, Code]:
    """How to judge calls by which a process could end itself, or with `several` a child, by SIGKILL."""
    refused = _op(_RETURN, _ERRNO | _EPERM)
    allowed, deadly = _op(_RETURN, _ALLOW), _op(_RETURN, _KILL)

    def unless_kill(argument: int) -> Code:
        return (_load(argument), _op(_JUMP_EQ, _SIGKILL, 1, 0), allowed)

    kill = [*unless_kill(1), _load(0), *_unless(1, _ERRNO | _EPERM), *_unless(_EVERYTHING, _ERRNO | _EPERM)]
    kill += [*_unless(0, _KILL), *_unless(_MAIN, _KILL), *_unless(-_MAIN, _KILL), allowed] if several else [deadly]
    not_cpu = (_op(_JUMP_EQ, _RLIMIT_CPU, 1, 0), allowed)
    only_asked = (_load(2), _op(_JUMP_EQ, 0, 0, 3), _load(2, high=True), *_any_of((0,)))
    judged: dict[str, Code] = {
        "kill": tuple(kill),
        "tkill": (*unless_kill(1), deadly),
        "tgkill": (*unless_kill(2), deadly),
        "setrlimit": (_load(0), *not_cpu, refused),
        # Only its own limits; elsewhere another process could be named. The limit on its time it may only ask for.
        "prlimit64": (_load(0), _op(_JUMP_EQ, 0, 1, 0), refused, _load(1), *not_cpu, *only_asked),
    }
    if several:  # it must not join the process group of a child, which another child may end
        new_group = (_load(1), *_any_of((0, _MAIN)))
        of_main = (_op(_JUMP_EQ, _MAIN, 1, 0), _op(_JUMP_EQ, 0, 0, len(new_group)), *new_group)
        judged["setpgid"] = (_load(0), *of_main, allowed)
    return {number: code for name, code in judged.items() for number in numbers(name)}


def engine_profile() -> dict[str, object]:
    """Returns the filter of a container in the form that container engines read: an allow-list as well.

    Beyond a program's filter it allows what it takes to make sandboxes, such as namespaces, which no program can make.
    """
    names = sorted({*ALLOWED.split(), *STARTING.split(), *MAKING.split(), *JUDGED.split()})
    return {
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": _EPERM,
        "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_AARCH64"],
        "syscalls": [{"names": names, "action": "SCMP_ACT_ALLOW"}],
    }


def session_profile() -> dict[str, object]:
    """Returns the filter of a session in a container, in the form that container engines read.

    It refuses what `session_filter` refuses, and namespaces, which nothing else limits in a container. The engine's own
    filter depends on its version: some let io_uring through.
    """
    refused = sorted({*DEADLY.split()} - {*HARMLESS.split()})
    kinds = [1 << bit for bit in range(_NAMESPACES.bit_length()) if _NAMESPACES & ~0xFF & 1 << bit]
    judged = [("socket", _AF_VSOCK, "SCMP_CMP_EQ"), *(("clone", kind, "SCMP_CMP_MASKED_EQ") for kind in kinds)]
    return {
        "defaultAction": "SCMP_ACT_ALLOW",
        "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_AARCH64"],
        "syscalls": [
            {"names": refused, "action": "SCMP_ACT_ERRNO", "errnoRet": _EPERM},
            {"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": _ENOSYS},  # its flags are out of sight
            *(
                {
                    "names": [name],
                    "action": "SCMP_ACT_ERRNO",
                    "errnoRet": _EPERM,
                    "args": [{"index": 0, "value": value, "valueTwo": value, "op": operation}],
                }
                for name, value, operation in judged
            ),
        ],
    }


def _segments(judged: dict[int, Code], otherwise: bytes) -> list[tuple[int, Code]]:
    """The first number of each run of calls that are judged alike, with the code that judges them."""
    segments: list[tuple[int, Code]] = []
    for number in range(max(judged) + 2):
        body = judged.get(number, (otherwise,))
        if not segments or segments[-1][1] != body:
            segments.append((number, body))
    return segments


def _searched(segments: list[tuple[int, Code]]) -> Code:
    """Binary search: the kernel runs the filter for every number when it is set."""
    if len(segments) == 1:
        return segments[0][1]
    half = len(segments) // 2
    below, above = _searched(segments[:half]), _searched(segments[half:])
    if len(below) <= _FARTHEST:
        return (_op(_JUMP_GE, segments[half][0], len(below), 0), *below, *above)
    return (_op(_JUMP_GE, segments[half][0], 0, 1), _op(_JUMP, len(below)), *below, *above)


def _op(code: int, value: int, when_true: int = 0, when_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, when_true, when_false, value)


def _number(value: int) -> bytes:
    return struct.pack("=I", value & 0xFFFFFFFF)


def _load(argument: int, *, high: bool = False) -> bytes:
    """Loads the low or the high half of an argument; little-endian, as both architectures are."""
    return _op(_LOAD, _ARGUMENTS + 8 * argument + 4 * high)


def _unless(value: int, answer: int) -> Code:
    """Answers when the loaded value is this one, else goes on."""
    return (_op(_JUMP_EQ, value & 0xFFFFFFFF, 0, 1), _op(_RETURN, answer))


def _any_of(values: tuple[int, ...]) -> Code:
    code: list[bytes] = []
    for value in values:
        code += [_op(_JUMP_EQ, value, 0, 1), _op(_RETURN, _ALLOW)]
    return (*code, _op(_RETURN, _ERRNO | _EPERM))
