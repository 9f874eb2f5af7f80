"""Runs untrusted programs in isolation and reports what happened to each.

Theory of operation. A pool (`pool`) has slots. A slot (`slot`) is one sandbox: its launcher (`launcher`) makes the
namespaces and a root of read-only copies (`plan`, `interpreter`, `profiles`), and becomes a zygote (`zygote`), which
forks once for each job. The fork (`runner`) gives up every right (`seccomp`, `landlock`, `kernel`) and then runs the
program (`python_main`, or a command). Jobs and outputs travel in memory files (`wire`, `bundle`).
"""
