"""The checkpoints of the device tests."""

from tests.llamas import make_model, pair, write_llama  # noqa: F401  # fixtures
