"""Defines environments that speak in texts: the space of strings, prompts, one question and one completion."""

from __future__ import annotations

from typing import Literal

TemplateName = Literal["reasoning", "solution", "think", "hash", "custom"]
"""The layouts that `templates` describes; here, where an environment's options can name them at no cost."""
