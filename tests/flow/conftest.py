"""An installation of real processes on 127.0.0.1: two engines over a random tiny pair, a gateway, control, an alert receiver.

Draft and target have the same weights, so every greedy draft is accepted and a rollout walks on as fast as requests come.
"""

import contextlib
import json
import os
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import tokenizers
import yaml
from safetensors.numpy import save_file

from specops.adapters.alerts import Receiver
from specops.adapters.weights import hash_artifact
from specops.control.register import register
from specops.control.rollouts import Plan, start
from specops.core.policy import parse_policy
from specops.core.release import ArtifactKind, Release
from specops.core.rollout import Step, StepKind
from specops.demo.lineup import K
from specops.demo.pair import Pair
from specops.demo.scenes import wait_until
from specops.demo.stage import Stage
from specops.demo.traffic import Traffic
from specops.engines.process import free_port
from specops.settings import Settings
from specops.wiring import House, gateway_status, now, opened

HIDDEN, LAYERS, INTERMEDIATE, VOCAB = 32, 2, 48, 280
TEXT = "def add(a, b):\n    return a + b\n\nfor name in names:\n    print(name)\n"
POLICY = """
# No limit on latency: these tests run on busy machines, and nothing they show depends on it.
name: flow
version: 1
alpha: 0.01
arl_requests: 100000
fatal: {engine_unreachable: 1}
checks:
  - name: acceptance
    metric: acceptance_rate
    at_least: 0.45
    weight: 0.5
    min_requests: 8
    on_no_data: hold
    owner: flow
    source: draft and target are equal
  - name: errors
    metric: error
    at_most: 0.05
    pass_at: 0.25
    weight: 0.5
    min_requests: 8
    owner: flow
    source: no request may fail
"""
PROMPTS = tuple(f"def f{n}(a, b):\n    return a + {n}\n" for n in range(50))


def write_model(folder):
    """Write a random Llama with a byte-level tokenizer; without an end token, so that every answer has full length."""
    folder.mkdir(parents=True)
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=VOCAB, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator([TEXT] * 4, trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text("{}")
    vocab = tokenizer.get_vocab_size()
    save_file(random_weights(np.random.default_rng(7), vocab), folder / "model.safetensors")
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": vocab, "hidden_size": HIDDEN,
        "num_hidden_layers": LAYERS, "num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": INTERMEDIATE,
        "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
        "tie_word_embeddings": False, "eos_token_id": None,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def random_weights(rng, vocab):
    """Return tensors of a Llama by name."""
    shapes = {"model.embed_tokens.weight": (vocab, HIDDEN), "model.norm.weight": (HIDDEN,), "lm_head.weight": (vocab, HIDDEN)}
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}."
        shapes |= {prefix + f"self_attn.{name}_proj.weight": (HIDDEN, HIDDEN) for name in "qkvo"}
        shapes |= {prefix + f"mlp.{name}_proj.weight": (INTERMEDIATE, HIDDEN) for name in ("gate", "up")}
        shapes |= {prefix + "mlp.down_proj.weight": (HIDDEN, INTERMEDIATE)}
        shapes |= {prefix + f"{name}_layernorm.weight": (HIDDEN,) for name in ("input", "post_attention")}
    return {
        name: np.ones(shape, np.float32) if len(shape) == 1 else rng.normal(0, 0.4, shape).astype(np.float32)
        for name, shape in shapes.items()
    }


@pytest.fixture(scope="session")
def make_model():
    """Write a tiny model into a folder."""
    return write_model


@pytest.fixture(scope="session")
def pair(tmp_path_factory):
    """Write target and draft with equal weights."""
    root = tmp_path_factory.mktemp("pair")
    target, draft = write_model(root / "target"), write_model(root / "draft")
    return Pair(target=target, draft=draft, stale=draft, prompts={"code": PROMPTS, "prose": PROMPTS}, recipe={})


@dataclass(kw_only=True)
class Site:
    """The running installation and what a test asks of it."""

    house: House
    stage: Stage
    receiver: Receiver
    rollout_id: str = "ro-flow"
    loads: list = field(default_factory=list)

    def begin(self, *, canary_requests, shadow_requests=8):
        """Start a rollout of shadow, half the traffic, watch; return once the gateway has its route."""
        steps = (
            Step(kind=StepKind.SHADOW, mirror=1.0, min_requests=shadow_requests),
            Step(kind=StepKind.CANARY, weight=0.5, min_requests=canary_requests),
            Step(kind=StepKind.WATCH, weight=1.0, min_requests=1),
        )
        plan = Plan(
            rollout_id=self.rollout_id, baseline="plain", candidate="speculative", pipeline="flow", steps=steps,
            policy=parse_policy(yaml.safe_load(POLICY)),
            policy_text=POLICY, baseline_url=self.stage.plain.base_url, candidate_url=self.stage.speculative.base_url,
        )  # fmt: skip
        start(self.house.store, plan, actor="tester", now=now())
        self.start_control()
        self.wait(lambda: (self.status() or {}).get("route"), "the first route")

    def start_control(self):
        """Start the control process."""
        return self.stage.start("control", "control", "serve")

    def load(self, rate_per_s, *, seed=0):
        """Start clients; `stop()` of what is returned gives their report."""
        traffic = Traffic(url=self.house.settings.gateway_url, code=PROMPTS, prose=PROMPTS, rate_per_s=rate_per_s, seed=seed)
        traffic.start()
        self.loads.append(traffic)
        return traffic

    def stop(self, traffic):
        """End a load and return its report."""
        self.loads.remove(traffic)
        return traffic.stop()

    def wait(self, holds, what, timeout_s=120.0):
        """Wait for a condition; the logs are in the message when it never comes."""
        try:
            wait_until(lambda: bool(holds()), timeout_s=timeout_s, what=what)
        except Exception as error:
            log = self.stage.logs / "control.log"
            raise AssertionError(f"{error}; {self.rollout()}; {log.read_text()[-2000:] if log.exists() else ''}") from error

    def rollout(self):
        """Return the rollout as stored."""
        with self.house.store.read() as unit:
            return unit.rollouts.get(self.rollout_id)

    def window(self):
        """Return the stored evidence as (candidate outcomes, gateway epoch)."""
        with self.house.store.read() as unit:
            stored = unit.windows.load(self.rollout_id)
        return (stored[0]["candidate_outcomes"], stored[1]) if stored else (0, None)

    def snapshot(self):
        """Return stored outcomes and the candidate outcomes in evidence, of one moment: control may still be at work."""
        with self.house.store.read() as unit:
            return unit.outcomes.read(self.rollout_id), unit.windows.load(self.rollout_id)[0]["candidate_outcomes"]

    def entries(self, *tags):
        """Return the audit entries of the rollout with one of these tags."""
        with self.house.store.read() as unit:
            return [entry for entry in unit.audit.of(self.rollout_id) if entry.tag in tags]

    def status(self):
        """Return what the gateway says, None while it is away."""
        return gateway_status(self.house.settings)

    def wait_canary(self, candidate_outcomes=10):
        """Return once the canary step has so many outcomes of the candidate."""

        def there():
            rollout = self.rollout()
            return rollout.step == 1 and self.window()[0] >= rollout.step_began_at + candidate_outcomes

        self.wait(there, "the canary")

    def proof(self):
        """End control, sign the audit log's head and verify the log."""
        self.stage.end("control")
        self.house.checkpoint()
        return self.house.verify()


@pytest.fixture
def site(tmp_path, pair):
    """Start engines and gateway and register both releases; no rollout yet."""
    data = tmp_path / "data"
    (data / "logs").mkdir(parents=True)
    with contextlib.ExitStack() as stack:
        receiver = stack.enter_context(Receiver(data / "alerts.jsonl"))
        settings = Settings(data_dir=data, gateway_port=free_port(), alertmanager_url=receiver.url, actor="tester")
        house = stack.enter_context(opened(settings))
        stage = stack.enter_context(Stage(settings=settings, pair=pair))
        stage.start_engines()
        stage.start_gateway()
        enroll(house, pair)
        for engine in (stage.plain, stage.speculative):
            engine.wait_ready(timeout_s=180.0)
        running = Site(house=house, stage=stage, receiver=receiver)
        yield running
        for traffic in list(running.loads):
            running.stop(traffic)


def enroll(house, pair):
    """Register two releases of the pair."""
    target = hash_artifact(ArtifactKind.TARGET, "target", pair.target, files=["config.json", "model.safetensors"])
    draft = hash_artifact(ArtifactKind.DRAFT, "draft", pair.draft, files=["config.json", "model.safetensors"])
    plain = Release(name="plain", target=target.digest, tokenizer="t")
    speculative = Release(
        name="speculative", target=target.digest, tokenizer="t", draft=draft.digest, draft_tokenizer="t",
        method="draft_model", num_speculative_tokens=K,
    )  # fmt: skip
    register(
        house.store, artifacts=(target, draft), edges=(), releases=(plain, speculative), actor="tester", now=now()
    )  # fmt: skip


@pytest.fixture
def listing():
    """Return every file under a folder with its size, to see what a command left behind."""

    def walk(folder):
        return {str(path.relative_to(folder)): path.stat().st_size for path in Path(folder).rglob("*") if path.is_file()}

    return walk


@pytest.fixture
def small_environment():
    """Return the environment for commands started by hand: one thread for numeric libraries."""
    return os.environ | {"OMP_NUM_THREADS": "1"}
