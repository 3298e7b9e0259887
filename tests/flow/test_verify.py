"""`specops verify` end to end: the command, HTTP servers with a sound and with a broken rule, the page and the evidence row."""

import json

import pytest

from specops.cli.main import main
from specops.control.register import register
from specops.control.verify_record import current
from specops.core.fidelity_atoms import Sampling
from specops.core.fidelity_sample import Ask
from specops.core.release import Artifact, ArtifactKind, FileDigest, Release
from specops.engines.fidelity_endpoint import HttpEndpoint
from specops.errors import EngineUnavailable
from specops.settings import Settings
from specops.wiring import now, opened
from tests.dialect_server import served
from tests.endpoints import Memory, always, from_target, toys

pytestmark = pytest.mark.flow
TARGET, DRAFT = toys()
FACTS = {"version": "1", "dtype": "float32", "target": {"weights_sha256": "t"}}
OURS = FACTS | {"method": "draft_model", "num_speculative_tokens": 3}
SMALL = ("--max-tokens", "64", "--top", "12", "--tolerance", "0.05", "--budget", "3000", "--greedy-tokens", "64", "--json")


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    """Run a verification of an endpoint; return exit code, results, and what went to stderr."""
    monkeypatch.setenv("SPECOPS_DATA_DIR", str(tmp_path / "data"))
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("\n".join(f"prompt{chr(97 + i)}" for i in range(12)))

    def run(*endpoints, options=(), facts=FACTS, **serving):
        from contextlib import ExitStack  # noqa: PLC0415

        with ExitStack() as stack:
            urls = [stack.enter_context(served(one, **serving)) for one in endpoints]
            target = stack.enter_context(served(Memory(TARGET, facts=facts)))
            draft = stack.enter_context(served(Memory(DRAFT.model)))
            words = ["verify", *urls, "--target", target, "--draft", draft, "--prompts", str(prompts), *SMALL, *options]
            with pytest.raises(SystemExit) as left:
                main(words)
        said = capsys.readouterr()
        return left.value.code, json.loads(said.out), said.err

    return run


def test_a_sound_endpoint_passes_and_leaves_page_and_evidence(command, tmp_path):
    """Exit 0; the row holds while the scope is the same; the page names verdict and what was not tested."""
    artifact = Artifact(kind=ArtifactKind.TARGET, name="t", files=(FileDigest(path="f", size=1, sha256="a" * 64),))
    release = Release(name="spec", target=artifact.digest, tokenizer="b" * 64)
    with opened(Settings(data_dir=tmp_path / "data")) as house:
        register(house.store, artifacts=(artifact,), edges=(), releases=(release,), actor="ann", now=now())
    page = tmp_path / "page.html"

    code, (found,), said = command(Memory(TARGET, DRAFT, facts=OURS), options=("--out", str(page), "--release", "spec"))

    assert (code, found["verdict"]) == (0, "LOSSLESS WITHIN")
    assert "tokens to sample" in said
    text = page.read_text()
    assert "LOSSLESS WITHIN 0.05" in text
    assert "Not tested" in text
    assert "<svg" in text
    with opened(Settings(data_dir=tmp_path / "data")) as house, house.store.read() as unit:
        rows = unit.evidence.of(release.id)
        entries = unit.audit.of(release.id)
        due = unit.outbox.due(now())
    assert current(rows, found["scope"])["tokens"] == found["tokens"]
    assert current(rows, "another scope") is None
    assert entries[-1].tag == "release:evidence:fidelity"
    assert any(message.key.startswith("fidelity:") for message in due)


@pytest.mark.parametrize(
    ("rules", "diagnosis"), [({"accept": always}, "always accept"), ({"resample": from_target}, "resample from p")]
)
def test_a_broken_rule_behind_http_fails_and_is_named(command, rules, diagnosis):
    """Exit 1, within a few hundred tokens, without --positions and with them."""
    for options in ((), ("--positions", "4")):
        code, (found,), _ = command(Memory(TARGET, DRAFT, facts=OURS, rules=rules), options=options)

        assert (code, found["verdict"], found["diagnosis"]) == (1, "NOT LOSSLESS", diagnosis)


def test_of_two_endpoints_each_has_its_verdict(command):
    """And one that fails makes the command fail."""
    code, (good, bad), _ = command(Memory(TARGET, DRAFT), Memory(TARGET, DRAFT, rules={"accept": always}))

    assert (code, good["verdict"], bad["verdict"]) == (1, "LOSSLESS WITHIN", "NOT LOSSLESS")


def test_a_server_without_token_ids_is_read_by_its_text_with_the_limit_stated(command):
    """The ids are made again; the page says what that leaves open."""
    letters = Memory(TARGET, DRAFT, encode=lambda text: tuple((ord(one) - 97) % 24 for one in text))

    _, (found,), _ = command(letters, options=("--budget", "64"), reports_ids=False)

    assert any("made from text again" in one for one in found["not_tested"])


def test_a_job_is_resumed_from_its_file(command, tmp_path):
    """Done already: no further token is sampled."""
    endpoint, kept = Memory(TARGET, DRAFT), ("--save", str(tmp_path / "job.json"), "--budget", "600", "--tolerance", "0.001")
    _, (first,), _ = command(endpoint, options=kept)
    sampled = endpoint.sampled

    _, (second,), _ = command(endpoint, options=kept)

    assert endpoint.sampled == sampled
    assert second["path"] == first["path"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--ngram",), "2 of --draft, --surrogate and --ngram"),
        (("--temperature", "0"), "temperature is above 0"),
        (("--speculative-config", "[1]"), "give an object"),
        (("--speculative-config", "{"), "is no JSON"),
        (("--prompts", "/nowhere"), "cannot read prompts"),
        (("--dtype", "int4"), "int4"),
    ],
)
def test_wrong_usage_is_refused_with_the_way_out(command, options, words):
    """Exit 2 and nothing sampled."""
    endpoint = Memory(TARGET, DRAFT)

    code, found, said = command(endpoint, options=options)

    assert (code, endpoint.sampled) == (2, 0)
    assert words in said
    assert words in found["error"]


def test_a_lossy_setting_is_named_and_nothing_is_sampled(command):
    """From the server's facts, or from the flag."""
    endpoint = Memory(TARGET, DRAFT)

    code, (found,), _ = command(endpoint, options=("--speculative-config", '{"rejection_sample_method": "synthetic"}'))

    assert (code, endpoint.sampled) == (1, 0)
    assert "rejection_sample_method: synthetic), before any token" in found["words"]


def test_blocks_are_read_from_the_rounds_that_a_server_reports():
    """The prefill's token, then the accepted prefix and one more of each round, cut at the end."""
    ask = Ask(prompt_ids=(1, 2, 3), max_tokens=40, seed=5, sampling=Sampling())
    endpoint = Memory(TARGET, DRAFT)
    with served(endpoint) as url:
        found = HttpEndpoint(url).sample([ask], 1)[0]

    assert found == endpoint.sample([ask], 1)[0]
    assert sum(found.blocks) == len(found.token_ids) == 40
    assert found.blocks[0] == 1


def test_commands_speak_to_people_too(command, capsys, tmp_path):
    """Lines instead of JSON: verdict, bound, greedy part, limits; two files for two endpoints."""
    with served(Memory(TARGET, DRAFT)) as url, served(Memory(TARGET)) as target, served(Memory(DRAFT.model)) as draft:
        words = ["verify", url, url, "--target", target, "--surrogate", draft, *SMALL[:-1], "--tolerance", "0.001"]
        with pytest.raises(SystemExit) as left:
            main([*words, "--budget", "300", "--dtype", "float32", "--save", str(tmp_path / "job.json")])

    said = capsys.readouterr().out
    assert left.value.code == 1
    for part in ("INCONCLUSIVE after", "at most 0.", "greedy, endpoint: 64 tokens, 0 beyond", "not tested: ", "none rejected"):
        assert part in said
    assert (tmp_path / "job-2.json").is_file()
    (tmp_path / "job-1.json").write_text("[]")
    with served(Memory(TARGET)) as target, pytest.raises(SystemExit):
        main(["verify", target, target, "--target", target, *SMALL[:-1], "--save", str(tmp_path / "job.json")])
    assert "holds no saved job" in capsys.readouterr().err


def test_a_release_is_verified_at_one_endpoint(command):
    """Two would leave open which of them serves it."""
    code, _, said = command(Memory(TARGET), Memory(TARGET), options=("--release", "x"))

    assert code == 2
    assert "--release with 2 endpoints" in said


def test_log_probabilities_of_the_endpoint_are_asked_for_once_when_it_has_none():
    """A refusal is remembered; one that is not there is an error of its own."""
    with served(Memory(TARGET)) as url:
        endpoint = HttpEndpoint(url)
        assert endpoint.facts() == {}
        assert len(endpoint.encode("ab")) == 2

    with pytest.raises(EngineUnavailable):
        endpoint.facts()


LOSSY = {"method": "ngram", "rejection_sample_method": "synthetic"}


@pytest.mark.parametrize(
    ("described", "known"),
    [
        ({"vllm_config": {"speculative_config": LOSSY | {"model_config": {}}}}, {"speculative_config": LOSSY}),
        ({"vllm_config": {"speculative_config": None}}, {}),
        ({"vllm_config": "again as text"}, {}),
    ],
)
def test_a_server_that_describes_itself_as_text_is_asked_again_as_json(described, known):
    """The text leaves the rejection method out, which decides whether the endpoint can be lossless at all."""
    endpoint = Memory(TARGET)
    endpoint.facts = lambda: {"vllm_config": "SpeculativeConfig(method='ngram')", "version": "0.32.0"}
    endpoint.described = described

    with served(endpoint) as url:
        found = HttpEndpoint(url).facts()

    assert found == endpoint.facts() | known
