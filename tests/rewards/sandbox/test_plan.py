"""Missing protections: refused by name with what to do, or named in every result; control groups; other languages."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from grpo.plugins.errors import SandboxUnavailable
from grpo.plugins.pools import pool_of, run_jobs
from grpo.plugins.sandbox_job import Job, JobResult, Limits
from grpo.rewards.sandbox import cgroup
from grpo.rewards.sandbox.inside import syscall_numbers
from grpo.rewards.sandbox.inside.syscall_numbers import numbers
from grpo.rewards.sandbox.interpreter import find_interpreter
from grpo.rewards.sandbox.profiles import find_profile

# Runs as a program of its own: a filter makes the kernel refuse a call (with these bits in its first argument), as a
# kernel without the feature does; then a sandbox is made.
WITHOUT = """
import asyncio, ctypes, json, struct, sys
from grpo.plugins import kernel
number, bits, options, program = json.loads(sys.argv[1])
def op(code, value, yes=0, no=0): return struct.pack("=HBBI", code, yes, no, value)
refuse, allow = op(0x06, 0x00050001), op(0x06, 0x7FFF0000)
code = [op(0x20, 0), op(0x15, number, 0, 3), op(0x20, 16), op(0x45 if bits else 0x35, bits, 0, 1), refuse, allow]
kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
kernel.install(kernel.FilterProgram(len(code), b"".join(code)))
from grpo.core.check.attacks import attacks_in
from grpo.plugins.errors import SandboxUnavailable
from grpo.plugins.sandbox_job import Job
from grpo.rewards.sandbox.spec import local
try:
    pool = local(slots=2, **options)
except SandboxUnavailable as error:
    print(json.dumps({"error": str(error)}))
    sys.exit()
jobs = [Job(program), *(Job(attack.program, limits=attack.limits) for attack in attacks_in('access'))]
first, *attacks = asyncio.run(pool.run(jobs))
pool.close()
print(json.dumps({"stdout": first.stdout.decode(), "outcome": first.outcome, "degraded": first.degraded,
                  "breaches": [result.stdout.decode() for result in attacks if b"BREACH" in result.stdout]}))
"""


def without(call: str, bits: int = 0, program: str = "print(1)", **options: bool) -> dict[str, object]:
    [number] = numbers(call)
    arguments = json.dumps([number, bits, options, program])
    done = subprocess.run([sys.executable, "-c", WITHOUT, arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_a_missing_protection_is_refused_by_name_with_its_remedy() -> None:
    message = without("landlock_create_ruleset")["error"]
    assert "landlock not available. landlock: use Linux 5.13 or newer" in str(message)
    assert "allow_degraded=true" in str(message)


@pytest.mark.slow
def test_a_missing_protection_that_is_accepted_stands_in_every_result() -> None:
    found = without("landlock_create_ruleset", allow_degraded=True)
    assert found == {"stdout": "1\n", "outcome": "exited", "degraded": ["landlock"], "breaches": []}


@pytest.mark.core
def test_without_network_namespaces_the_calls_are_still_refused() -> None:
    assert "network namespace" in str(without("unshare", 0x40000000)["error"])
    found = without("unshare", 0x40000000, allow_degraded=True)
    assert found == {"stdout": "1\n", "outcome": "exited", "degraded": ["network namespace"], "breaches": []}


@pytest.mark.slow
def test_without_user_namespaces_root_can_isolate_and_others_cannot() -> None:
    message = str(without("unshare", 0x10000000)["error"])
    assert "user namespace: allow it with `sysctl kernel.unprivileged_userns_clone=1`" in message
    found = without("unshare", 0x10000000, "import os; print(os.getuid() > 10**6)", allow_degraded=True)
    if os.geteuid() == 0:
        assert found == {"stdout": "True\n", "outcome": "exited", "degraded": ["user namespace"], "breaches": []}
    else:
        assert "user namespace" in str(found["error"])


def test_what_separates_programs_from_the_host_is_never_given_up() -> None:
    message = str(without("unshare", 0x20000, allow_degraded=True)["error"])
    assert "mount namespace not available" in message
    assert "allow_degraded" not in message


def test_an_interpreter_that_cannot_be_used_is_named() -> None:
    with pytest.raises(SandboxUnavailable, match=r"'/none/python3' cannot be run .* python=/path/to/python3"):
        find_interpreter("/none/python3")


@pytest.mark.parametrize(
    ("header", "machine"),
    [("/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "x86_64"), ("/usr/include/asm-generic/unistd.h", "aarch64")],
)
def test_the_numbers_of_calls_are_those_of_the_kernel_s_headers(header: str, machine: str) -> None:
    if not Path(header).exists():
        pytest.skip(f"no {header}")
    defined = {}
    for line in Path(header).read_text().splitlines():
        words = line.split()
        if len(words) == 3 and words[0] == "#define" and words[1].startswith("__NR") and words[2].isdigit():
            defined[words[1].removeprefix("__NR3264_").removeprefix("__NR_")] = int(words[2])
    compared = 0
    for name, known in syscall_numbers.TABLE.items():
        if name in defined and machine in known:
            assert known[machine] == defined[name], name
            compared += 1
    assert compared > 100


@pytest.mark.core
@pytest.mark.skipif(not cgroup.places(), reason="no control group in which this process may make others")
def test_the_memory_of_all_processes_of_a_program_is_limited_together() -> None:
    program = (
        "import os, time\nfor _ in range(4):\n    if os.fork() == 0:\n        x = bytearray(b'x') * (150 * 2**20)\n"
        "        time.sleep(2)\n        os._exit(0)\nfor _ in range(4): os.wait()\nprint('end')"
    )
    limits = Limits(memory_bytes=256 * 2**20, processes=8, wall_seconds=8.0)
    [result] = run_jobs([Job(program, limits=limits)])
    assert result.outcome == "memory"
    assert run_jobs([Job("print(1)")])[0].stdout == b"1\n"


def run(program: str, profile: str, **job: object) -> JobResult:
    if not pool_of("local").capabilities()[f"profile:{profile}"]:
        pytest.skip(f"what {profile} needs is not installed")
    [result] = run_jobs([Job(program, profile=profile, **job)])  # type: ignore[arg-type]
    return result


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("gcc"), reason="no gcc")
def test_c_programs_are_compiled_and_run_inside() -> None:
    adds = '#include <stdio.h>\nint main(){int a,b;scanf("%d %d",&a,&b);printf("%d\\n",a+b);return 3;}'
    result = run(adds, "c", stdin=b"4 5")
    assert (result.outcome, result.exit_code, result.stdout) == ("exited", 3, b"9\n")
    broken = run("int main(){return x;}", "c")
    assert broken.outcome == "compile_error"
    assert b"'x' undeclared" in broken.stderr
    forks = '#include <unistd.h>\n#include <stdio.h>\nint main(){printf("%d", fork());return 0;}'
    assert run(forks, "c").stdout == b"-1"
    assert run("int main(){for(;;);}", "c", limits=Limits(cpu_seconds=0.5)).outcome == "time_cpu"
    assert run("int main(){return *(volatile int*)0;}", "c").outcome == "signalled"
    secret = '#include <stdio.h>\nint main(){puts(fopen("/etc/passwd","r") ? "BREACH" : "none");return 0;}'
    assert run(secret, "c").stdout == b"none\n"


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("node"), reason="no node")
def test_javascript_programs_are_run_inside() -> None:
    adds = 'console.log(require("fs").readFileSync(0, "utf8").split(" ").map(Number).reduce((a, b) => a + b))'
    assert run(adds, "javascript", stdin=b"4 5").stdout == b"9\n"
    assert run("while (true);", "javascript", limits=Limits(cpu_seconds=0.5)).outcome == "time_cpu"
    leak = "try { console.log('BREACH', require('fs').readFileSync('/etc/passwd')) } catch (e) { console.log(e.code) }"
    assert run(leak, "javascript").stdout == b"ENOENT\n"


def test_a_compiler_that_lacks_its_parts_is_not_offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = tmp_path / "gcc"
    compiler.write_text("#!/bin/sh\necho /nowhere/part\n", encoding="utf-8")
    compiler.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_profile("c") is None
