"""Create the tables of the first release.

Revision: 0001, the first.
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "artifact",
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("location", sa.Text(), nullable=False),
        sa.Column("files", sa.Text(), nullable=False),
        sa.Column("facts", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_artifact")),
    )
    op.create_table(
        "audit_entry",
        sa.Column("position", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("tag", sa.String(length=200), nullable=False),
        sa.Column("actor", sa.String(length=200), nullable=False),
        sa.Column("subject", sa.String(length=200), nullable=False),
        sa.Column("at", sa.String(length=32), nullable=False),
        sa.Column("raw", sa.LargeBinary(), nullable=False),
        sa.Column("leaf", sa.LargeBinary(length=32), nullable=False),
        sa.Column("root", sa.LargeBinary(length=32), nullable=False),
        sa.PrimaryKeyConstraint("position", name=op.f("pk_audit_entry")),
    )
    op.create_index(op.f("ix_audit_entry_subject"), "audit_entry", ["subject"], unique=False)
    op.create_table(
        "audit_head",
        sa.Column("log", sa.String(length=32), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("peaks", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("log", name=op.f("pk_audit_head")),
    )
    op.create_table(
        "checkpoint",
        sa.Column("size", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("size", name=op.f("pk_checkpoint")),
    )
    op.create_table(
        "counter",
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("value", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_counter")),
    )
    op.create_table(
        "edge",
        sa.Column("source", sa.String(length=64), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("target", sa.String(length=64), nullable=False),
        sa.PrimaryKeyConstraint("source", "kind", "target", name=op.f("pk_edge")),
    )
    op.create_table(
        "lease",
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("holder", sa.String(length=200), nullable=False),
        sa.Column("token", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.String(length=32), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_lease")),
    )
    op.create_table(
        "outbox",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("kind", sa.String(length=64), nullable=False),
        sa.Column("key", sa.String(length=200), nullable=False),
        sa.Column("payload", sa.Text(), nullable=False),
        sa.Column("at", sa.String(length=32), nullable=False),
        sa.Column("due_at", sa.String(length=32), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("done_at", sa.String(length=32), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_outbox")),
        sa.UniqueConstraint("kind", "key", name=op.f("uq_outbox_kind_key")),
    )
    op.create_index(op.f("ix_outbox_done_at_due_at"), "outbox", ["done_at", "due_at"], unique=False)
    op.create_table(
        "outcome_segment",
        sa.Column("rollout_id", sa.String(length=200), nullable=False),
        sa.Column("first", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.CheckConstraint("count > 0", name=op.f("ck_outcome_segment_not_empty")),
        sa.PrimaryKeyConstraint("rollout_id", "first", name=op.f("pk_outcome_segment")),
    )
    op.create_table(
        "outcome_tail",
        sa.Column("rollout_id", sa.String(length=200), nullable=False),
        sa.Column("position", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("record", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("rollout_id", "position", name=op.f("pk_outcome_tail")),
    )
    op.create_table(
        "policy",
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_policy")),
    )
    op.create_table(
        "release",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("record", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_release")),
        sa.UniqueConstraint("digest", name=op.f("uq_release_digest")),
        sa.UniqueConstraint("name", name=op.f("uq_release_name")),
    )
    op.create_table(
        "rollout",
        sa.Column("id", sa.String(length=200), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("record", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_rollout")),
    )
    op.create_index(op.f("ix_rollout_state"), "rollout", ["state"], unique=False)
    op.create_table(
        "alias_event",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("release_id", sa.String(length=32), nullable=False),
        sa.Column("actor", sa.String(length=200), nullable=False),
        sa.Column("at", sa.String(length=32), nullable=False),
        sa.ForeignKeyConstraint(["release_id"], ["release.id"], name=op.f("fk_alias_event_release_id_release")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_alias_event")),
    )
    op.create_index(op.f("ix_alias_event_name_id"), "alias_event", ["name", "id"], unique=False)
    op.create_table(
        "evidence",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("subject", sa.String(length=200), nullable=False),
        sa.Column("kind", sa.String(length=64), nullable=False),
        sa.Column("payload", sa.Text(), nullable=False),
        sa.Column("at", sa.String(length=32), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_evidence")),
    )
    op.create_index(op.f("ix_evidence_subject"), "evidence", ["subject"], unique=False)
    op.create_table(
        "evidence_window",
        sa.Column("rollout_id", sa.String(length=200), nullable=False),
        sa.Column("record", sa.Text(), nullable=False),
        sa.Column("epoch", sa.String(length=64), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["rollout_id"], ["rollout.id"], name=op.f("fk_evidence_window_rollout_id_rollout")),
        sa.PrimaryKeyConstraint("rollout_id", name=op.f("pk_evidence_window")),
    )
    op.create_table(
        "verdict",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("rollout_id", sa.String(length=200), nullable=False),
        sa.Column("result", sa.String(length=16), nullable=False),
        sa.Column("policy_digest", sa.String(length=64), nullable=False),
        sa.Column("outcomes", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.String(length=32), nullable=False),
        sa.Column("record", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["rollout_id"], ["rollout.id"], name=op.f("fk_verdict_rollout_id_rollout")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_verdict")),
    )
    op.create_index(op.f("ix_verdict_rollout_id"), "verdict", ["rollout_id"], unique=False)


def downgrade() -> None:
    """Undo."""
    op.drop_index(op.f("ix_verdict_rollout_id"), table_name="verdict")
    op.drop_table("verdict")
    op.drop_table("evidence_window")
    op.drop_index(op.f("ix_evidence_subject"), table_name="evidence")
    op.drop_table("evidence")
    op.drop_index(op.f("ix_alias_event_name_id"), table_name="alias_event")
    op.drop_table("alias_event")
    op.drop_index(op.f("ix_rollout_state"), table_name="rollout")
    op.drop_table("rollout")
    op.drop_table("release")
    op.drop_table("policy")
    op.drop_table("outcome_tail")
    op.drop_table("outcome_segment")
    op.drop_index(op.f("ix_outbox_done_at_due_at"), table_name="outbox")
    op.drop_table("outbox")
    op.drop_table("lease")
    op.drop_table("edge")
    op.drop_table("counter")
    op.drop_table("checkpoint")
    op.drop_table("audit_head")
    op.drop_index(op.f("ix_audit_entry_subject"), table_name="audit_entry")
    op.drop_table("audit_entry")
    op.drop_table("artifact")
