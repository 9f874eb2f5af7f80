"""How a setting names a plugin: a SPEC, or a table of one, which says more than fits in a line."""

from typing import Annotated, Any

from pydantic import WithJsonSchema

PLUGIN_TABLE = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "description": "A SPEC without options."},
        "options": {"type": "object", "description": "The plugin's own."},
        "weight": {"type": "number"},
        "as": {"type": "string", "description": "Its name in this run."},
        "timeout": {"type": "number", "exclusiveMinimum": 0, "description": "Seconds for one call."},
        "reads": {"enum": ["turn", "rollout"], "description": "What a reward sees of several turns."},
    },
    "required": ["name"],
    "additionalProperties": False,
}
PluginRef = str | Annotated[dict[str, Any], WithJsonSchema(PLUGIN_TABLE)]
