"""Find what depends on a thing from the index alone: the index of edges by target also holds their source; and artifacts by name.

Revision: 0003, after 0002. Measured on 1 M edges, 10 k dependants, SQLite 3.40: the recursive query takes 0.5 s instead of
0.7 s. Only an index changes: the release before works on it.
"""

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.create_index(op.f("ix_edge_target_kind_source"), "edge", ["target", "kind", "source"], unique=False)
    op.drop_index(op.f("ix_edge_target_kind"), table_name="edge")
    op.create_index(op.f("ix_artifact_name"), "artifact", ["name"], unique=False)


def downgrade() -> None:
    """Undo."""
    op.drop_index(op.f("ix_artifact_name"), table_name="artifact")
    op.create_index(op.f("ix_edge_target_kind"), "edge", ["target", "kind"], unique=False)
    op.drop_index(op.f("ix_edge_target_kind_source"), table_name="edge")
