"""Provides sessions: machines that live for an episode.

Theory of operation of `local`. A pool (`pool`) has one launcher process (`launcher`), which forks a keeper for each
session. The keeper makes the namespaces and forks their process 1 (`process_one`), which builds the root (`root`) and
then serves its session over a socket: it starts programs without any right, opens files, packs them and kills. When the
keeper, the launcher or the owner of the pool ends, the kernel kills process 1, with it every process of the session,
and frees its files and mounts, which nothing else holds.
"""
