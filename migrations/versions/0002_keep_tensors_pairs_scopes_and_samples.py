"""Keep tensor digests, proven pairs, the scope of evidence, and erasable samples.

Revision: 0002, after 0001. Adds tables, nullable columns and columns with a default: the release before still works on it.
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.add_column("artifact", sa.Column("properties", sa.Text(), server_default="{}", nullable=False))
    op.add_column("artifact", sa.Column("claims", sa.Text(), server_default="{}", nullable=False))
    op.add_column("evidence", sa.Column("scope", sa.String(length=64), nullable=True))
    op.create_index(op.f("ix_evidence_scope"), "evidence", ["scope"], unique=False)
    op.create_index(op.f("ix_edge_target_kind"), "edge", ["target", "kind"], unique=False)
    op.create_table(
        "tensor",
        sa.Column("artifact", sa.String(length=64), nullable=False),
        sa.Column("file", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("dtype", sa.String(length=16), nullable=False),
        sa.Column("shape", sa.Text(), nullable=False),
        sa.Column("digest", sa.String(length=80), nullable=False),
        sa.ForeignKeyConstraint(["artifact"], ["artifact.digest"], name=op.f("fk_tensor_artifact_artifact")),
        sa.PrimaryKeyConstraint("artifact", "file", "name", name=op.f("pk_tensor")),
    )
    op.create_index(op.f("ix_tensor_digest"), "tensor", ["digest"], unique=False)
    op.create_table(
        "pair",
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("relation", sa.String(length=32), nullable=False),
        sa.Column("record", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_pair")),
    )
    op.create_table(
        "sample",
        sa.Column("key", sa.String(length=64), nullable=False),
        sa.Column("part", sa.String(length=16), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.Column("at", sa.String(length=32), nullable=False),
        sa.Column("expires_at", sa.String(length=32), nullable=False),
        sa.PrimaryKeyConstraint("key", "part", name=op.f("pk_sample")),
    )
    op.create_index(op.f("ix_sample_expires_at"), "sample", ["expires_at"], unique=False)


def downgrade() -> None:
    """Undo; samples, pairs and tensor digests are lost."""
    op.drop_table("sample")
    op.drop_table("pair")
    op.drop_table("tensor")
    op.drop_index(op.f("ix_edge_target_kind"), table_name="edge")
    op.drop_index(op.f("ix_evidence_scope"), table_name="evidence")
    with op.batch_alter_table("evidence") as batch:
        batch.drop_column("scope")
    with op.batch_alter_table("artifact") as batch:
        batch.drop_column("claims")
        batch.drop_column("properties")
