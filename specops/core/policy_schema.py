"""The shape of a policy file as JSON Schema, for editors: completion, range checks and a sentence per key while typing.

Built from the table that the parser reads (`core.policy_fields`), so the two cannot drift apart. A file that fits the schema
can still be refused: which keys go together is for `core.policy`, whether the policy is wise for `core.policy_lint`.
"""

from typing import Any

from specops.core.policy import MAX_CHECKS
from specops.core.policy_fields import CHECK_FIELDS, POLICY_FIELDS
from specops.core.policy_kinds import table_schema

DRAFT = "https://json-schema.org/draft/2020-12/schema"


def policy_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a policy file, JSON-ready."""
    schema = table_schema(POLICY_FIELDS)
    checks = {
        "type": "array",
        "minItems": 1,
        "maxItems": MAX_CHECKS,
        "items": table_schema(CHECK_FIELDS),
        "description": "the rules; at least one must decide",
    }
    title = {"$schema": DRAFT, "title": "specops policy", "description": "What is acceptable of a release on trial."}
    return (
        title
        | schema
        | {
            "properties": schema["properties"] | {"checks": checks},
            "required": [*schema["required"], "checks"],
        }
    )
