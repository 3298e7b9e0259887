"""A random tiny Llama pair with a byte-level tokenizer, and real servers over it on 127.0.0.1."""

import asyncio
import contextlib
import json
import threading
from pathlib import Path

import numpy as np
import pytest
import tokenizers
from safetensors.numpy import save_file

from specops.engines.client import EngineClient
from specops.engines.config import ServerConfig
from specops.engines.engine import open_engine
from specops.engines.server import bind, start

TEXTS = ["def add(a, b):\n    return a + b\n", "for name in names:\n    print(name)\n", "the naïve café costs 3 € – 日本語 🙂"]
MAX_LEN = 256


def write_tokenizer(folder, *, texts=TEXTS, vocab_size=320):
    """Train a byte-level BPE on a few strings and save it."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=["<eos>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts * 4, trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    return tokenizer.get_vocab_size()


def random_weights(rng, *, vocab, hidden=32, layers=2, intermediate=48):
    """Return tensors of a tiny Llama, norms at one."""
    shapes = {"model.embed_tokens.weight": (vocab, hidden), "model.norm.weight": (hidden,), "lm_head.weight": (vocab, hidden)}
    for layer in range(layers):
        prefix = f"model.layers.{layer}."
        shapes |= {prefix + f"self_attn.{name}_proj.weight": (hidden, hidden) for name in "qkvo"}
        shapes |= {prefix + f"mlp.{name}_proj.weight": (intermediate, hidden) for name in ("gate", "up")}
        shapes |= {prefix + "mlp.down_proj.weight": (hidden, intermediate)}
        shapes |= {prefix + f"{name}_layernorm.weight": (hidden,) for name in ("input", "post_attention")}
    return {
        name: np.ones(shape, np.float32) if len(shape) == 1 else rng.normal(0, 0.4, shape).astype(np.float32)
        for name, shape in shapes.items()
    }


def write_checkpoint(folder, weights, *, vocab, max_len=MAX_LEN):
    """Write weights and config."""
    save_file(weights, folder / "model.safetensors")
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": vocab, "hidden_size": 32,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 48,
        "max_position_embeddings": max_len, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
        "tie_word_embeddings": False, "eos_token_id": 0,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))


def write_pair(root):
    """Write target and draft; the draft is the target with noise, so some drafts are accepted and some are not."""
    rng = np.random.default_rng(7)
    target, draft = root / "target", root / "draft"
    for folder in (target, draft):
        folder.mkdir()
        vocab = write_tokenizer(folder)
    weights = random_weights(rng, vocab=vocab)
    noisy = {name: (value + rng.normal(0, 0.05, value.shape)).astype(np.float32) for name, value in weights.items()}
    write_checkpoint(target, weights, vocab=vocab)
    write_checkpoint(draft, noisy, vocab=vocab)
    return target, draft


@pytest.fixture(scope="session")
def pair(tmp_path_factory):
    """Share one target and draft."""
    return write_pair(tmp_path_factory.mktemp("pair"))


@pytest.fixture
def fresh_pair(tmp_path):
    """Give a test its own pair to break."""
    return write_pair(tmp_path)


@contextlib.contextmanager
def served(config, sink=None):
    """Run a server in a thread; yield its address and its engine."""
    engine, loop, ready, addresses = open_engine(config, sink=sink), asyncio.new_event_loop(), threading.Event(), []
    stop = asyncio.Event()

    async def main():
        sock = bind(config.host, 0)
        runner = await start(engine, sock)
        addresses.append(sock.getsockname()[1])
        ready.set()
        await stop.wait()
        await runner.cleanup()

    thread = threading.Thread(target=loop.run_until_complete, args=(main(),))
    thread.start()
    ready.wait(30)
    try:
        yield f"http://127.0.0.1:{addresses[0]}", engine
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()
        engine.close()


@pytest.fixture(scope="session")
def plain(pair):
    """Share a plain server."""
    with served(ServerConfig(model=pair[0], served_model_name="tiny", drain_s=1)) as (url, _):
        yield EngineClient(url)


@pytest.fixture(scope="session")
def speculative_config(pair):
    """Say what the shared speculative server runs."""
    return ServerConfig(
        model=pair[0], draft=pair[1], method="draft_model", num_speculative_tokens=3, served_model_name="tiny", drain_s=1
    )


@pytest.fixture(scope="session")
def speculative(speculative_config):
    """Share a speculative server."""
    with served(speculative_config) as (url, _):
        yield EngineClient(url)


@pytest.fixture
def make_server():
    """Start a server for one test; returns its client and engine."""
    with contextlib.ExitStack() as stack:

        def make(**fields):
            url, engine = stack.enter_context(served(ServerConfig(drain_s=1, served_model_name="tiny", **fields)))
            return EngineClient(url), engine

        yield make


@pytest.fixture
def tokenizer(pair):
    """Load the tokenizer of the pair."""
    return tokenizers.Tokenizer.from_file(str(Path(pair[0]) / "tokenizer.json"))


@pytest.fixture
def rewrite():
    """Change the JSON of a file in place."""

    def change(path, edit):
        value = json.loads(path.read_text("utf-8"))
        edit(value)
        path.write_text(json.dumps(value), "utf-8")

    return change
