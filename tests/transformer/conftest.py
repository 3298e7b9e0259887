"""The checkpoints of the transformer tests."""

from tests.llamas import make_model, write_llama  # noqa: F401  # fixtures
