"""Fails on import, as a plugin does whose own dependency is missing."""

import a_module_that_does_not_exist  # type: ignore[import-not-found]  # noqa: F401
