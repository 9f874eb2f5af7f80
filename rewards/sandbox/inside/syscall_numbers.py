"""Numbers the system calls that the sandbox names, on x86_64 and aarch64, from the kernel's own headers."""

from __future__ import annotations

import os

_TABLE = """
    access 21 -1, acct 163 89, add_key 248 217, adjtimex 159 171, alarm 37 -1, arch_prctl 158 -1, bpf 321 280,
    brk 12 214, capget 125 90, chdir 80 49, chmod 90 -1, chroot 161 51, clock_adjtime 305 266, clock_getres
    229 114, clock_gettime 228 113, clock_nanosleep 230 115, clock_settime 227 112, clone 56 220, clone3 435
    435, close 3 57, close_range 436 436, copy_file_range 326 285, creat 85 -1, delete_module 176 106, dup 32
    23, dup2 33 -1, dup3 292 24, epoll_create 213 -1, epoll_create1 291 20, epoll_ctl 233 21, epoll_pwait 281
    22, epoll_wait 232 -1, eventfd 284 -1, eventfd2 290 19, execve 59 221, execveat 322 281, exit 60 93,
    exit_group 231 94, faccessat 269 48, faccessat2 439 439, fadvise64 221 223, fallocate 285 47, fchdir 81
    50, fchmod 91 52, fchmodat 268 53, fcntl 72 25, fdatasync 75 83, fgetxattr 193 10, finit_module 313 273,
    flistxattr 196 13, fork 57 -1, fsconfig 431 431, fsetxattr 190 7, fsmount 432 432, fsopen 430 430, fspick
    433 433, fstat 5 80, fstatfs 138 44, fsync 74 82, ftruncate 77 46, futex 202 98, futimesat 261 -1,
    get_robust_list 274 100, getcpu 309 168, getcwd 79 17, getdents 78 -1, getdents64 217 61, getegid 108 177,
    geteuid 107 175, getgid 104 176, getgroups 115 158, getitimer 36 102, getpeername 52 205, getpgid 121 155,
    getpgrp 111 -1, getpid 39 172, getppid 110 173, getpriority 140 141, getrandom 318 278, getresgid 120 150,
    getresuid 118 148, getrlimit 97 163, getrusage 98 165, getsid 124 156, getsockname 51 204, getsockopt 55
    209, gettid 186 178, gettimeofday 96 169, getuid 102 174, getxattr 191 8, init_module 175 105,
    io_uring_enter 426 426, io_uring_register 427 427, io_uring_setup 425 425, ioctl 16 29, ioperm 173 -1,
    iopl 172 -1, kcmp 312 272, kexec_file_load 320 294, kexec_load 246 104, keyctl 250 219, kill 62 129,
    landlock_add_rule 445 445, landlock_create_ruleset 444 444, landlock_restrict_self 446 446, lgetxattr 192
    9, link 86 -1, linkat 265 37, listxattr 194 11, llistxattr 195 12, lookup_dcookie 212 18, lseek 8 62,
    lsetxattr 189 6, lstat 6 -1, madvise 28 233, membarrier 324 283, memfd_secret 447 447, mkdir 83 -1,
    mkdirat 258 34, mknod 133 -1, mknodat 259 33, mmap 9 222, modify_ldt 154 -1, mount 165 40, mount_setattr
    442 442, move_mount 429 429, mprotect 10 226, mremap 25 216, msync 26 227, munmap 11 215,
    name_to_handle_at 303 264, nanosleep 35 101, newfstatat 262 79, open 2 -1, open_by_handle_at 304 265,
    open_tree 428 428, openat 257 56, pause 34 -1, perf_event_open 298 241, pidfd_getfd 438 438, pipe 22 -1,
    pipe2 293 59, pivot_root 155 41, poll 7 -1, ppoll 271 73, prctl 157 167, pread64 17 67, preadv 295 69,
    prlimit64 302 261, process_vm_readv 310 270, process_vm_writev 311 271, pselect6 270 72, ptrace 101 117,
    pwrite64 18 68, pwritev 296 70, quotactl 179 60, read 0 63, readlink 89 -1, readlinkat 267 78, readv 19
    65, reboot 169 142, recvfrom 45 207, rename 82 -1, renameat 264 38, renameat2 316 276, request_key 249
    218, restart_syscall 219 128, rmdir 84 -1, rseq 334 293, rt_sigaction 13 134, rt_sigpending 127 136,
    rt_sigprocmask 14 135, rt_sigreturn 15 139, rt_sigsuspend 130 133, rt_sigtimedwait 128 137,
    sched_get_priority_max 146 125, sched_get_priority_min 147 126, sched_getaffinity 204 123, sched_getparam
    143 121, sched_getscheduler 145 120, sched_setaffinity 203 122, sched_yield 24 124, seccomp 317 277,
    select 23 -1, sendfile 40 71, sendto 44 206, set_robust_list 273 99, set_tid_address 218 96, setdomainname
    171 162, sethostname 170 161, setitimer 38 103, setns 308 268, setpgid 109 154, setrlimit 160 164, setsid
    112 157, setsockopt 54 208, settimeofday 164 170, setxattr 188 5, shutdown 48 210, sigaltstack 131 132,
    socket 41 198, socketpair 53 199, stat 4 -1, statfs 137 43, statx 332 291, swapoff 168 225, swapon 167 224,
    symlink 88 -1, symlinkat 266 36, sync_file_range 277 84, sysinfo 99 179, syslog 103 116, tgkill 234 131, time
    201 -1, times 100 153, tkill 200 130, truncate 76 45, umask 95 166, umount2 166 39, uname 63 160, unlink 87 -1,
    unlinkat 263 35, unshare 272 97, userfaultfd 323 282, utime 132 -1, utimensat 280 88, utimes 235 -1, vfork
    58 -1, vhangup 153 58, wait4 61 260, waitid 247 95, write 1 64, writev 20 66
"""
_ARCHITECTURES = ("x86_64", "aarch64")
_AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

TABLE: dict[str, dict[str, int]] = {
    name: {arch: int(number) for arch, number in zip(_ARCHITECTURES, numbers) if number != "-1"}  # noqa: B905
    for name, *numbers in (entry.split() for entry in _TABLE.split(","))
}


def known_architecture() -> bool:
    """Says whether the numbers of this machine are known."""
    return os.uname().machine in _ARCHITECTURES


def audit_number() -> int:
    """Returns the number by which a filter tells this architecture from others."""
    return _AUDIT[os.uname().machine]


def numbers(names: str) -> list[int]:
    """Returns the numbers of space-separated calls that this architecture has; KeyError for an unknown name."""
    machine = os.uname().machine
    known = [TABLE[name].get(machine) for name in names.split()]
    return [number for number in known if number is not None]
