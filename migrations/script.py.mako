"""${message}

Revision: ${up_revision}, after ${down_revision | comma,n}.

SAFETY RULE: the release before this one must still work on the upgraded database. So: add tables and nullable columns, never
rename or drop what the last release reads; one purpose per migration; never alter audit_entry, verdict, alias_event or
checkpoint (batch mode copies the table): add a table beside them. Set HEAD_REVISION in specops/store/schema.py.
"""

import sqlalchemy as sa
from alembic import op
${imports if imports else ""}

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = ${repr(branch_labels)}
depends_on = ${repr(depends_on)}


def upgrade() -> None:
    """Apply."""
    ${upgrades if upgrades else "pass"}


def downgrade() -> None:
    """Undo."""
    ${downgrades if downgrades else "pass"}
