"""Defines what every section of settings keeps to, and the number types that settings are made of."""

# Annotations are evaluated where they stand: written as text, each would be compiled again in every process.
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema, model_validator

AtLeastOne = Annotated[int, Field(ge=1)]
Count = Annotated[int, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
BelowOne = Annotated[float, Field(ge=0, lt=1)]
Rate = Annotated[float, Field(gt=0, le=1)]  # of Adam, which moves a weight by about as much: beyond 1 is a slip
Share = Annotated[float, Field(ge=0, le=1)]

PLUGIN_TABLE = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "description": "A SPEC without options."},
        "options": {"type": "object", "description": "The plugin's own."},
        "weight": {"type": "number"},
        "as": {"type": "string", "description": "Its name in this run."},
        "timeout": {"type": "number", "exclusiveMinimum": 0, "description": "Seconds for one call."},
        "reads": {"enum": ["turn", "rollout"], "description": "What a reward sees of several turns."},
        "mcp": {"type": ["string", "object", "array"], "description": "MCP servers whose tools an environment offers."},
    },
    "required": ["name"],
    "additionalProperties": False,
}
PluginRef = str | Annotated[dict[str, Any], WithJsonSchema(PLUGIN_TABLE)]


class Section(BaseModel):
    """What all sections keep to: frozen, no unknown keys, no infinity, no truth value for a number."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)

    @model_validator(mode="before")
    @classmethod
    def _no_truth_for_a_number(cls, given: Any) -> Any:
        for name, value in given.items() if isinstance(given, Mapping) else ():
            field = cls.model_fields.get(name)
            if isinstance(value, bool) and field is not None and "bool" not in str(field.annotation):
                raise ValueError(f"{name} is {value}, and it is not a setting that is true or false")
        return given
