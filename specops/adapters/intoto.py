"""In-toto statements about releases: what was tested with which result, and what was proven about a pair.

Pure: statements are built here, sealed by `adapters.dsse`. The first predicate is the in-toto project's own; a pair has none,
so it gets ours, documented in docs/reference/formats.md.

Sources: in-toto/attestation, spec v1 (Statement) and predicates/test-result v0.1.
"""

from collections.abc import Sequence
from typing import Any

from specops.core.canonical import canonical, digest_of
from specops.core.pair import Pair
from specops.core.release import Artifact, Release
from specops.core.slice import Evidence

STATEMENT = "https://in-toto.io/Statement/v1"
TEST_RESULT = "https://in-toto.io/attestation/test-result/v0.1"
PAIR = "https://specops.dev/attestation/pair/v1"
_PASSED = frozenset({"PASS"})
_FAILED = frozenset({"FAIL", "ERROR"})


def test_result(release: Release, policy_digest: str, verdict: dict[str, Any]) -> bytes:
    """Return the canonical bytes of a test-result statement from a verdict's record.

    PASS and WARNED follow the predicate's words: a verdict that neither passed nor failed (PENDING, INCONCLUSIVE) is WARNED.
    """
    findings = verdict.get("findings", [])
    result = "PASSED" if verdict["result"] in _PASSED else "FAILED" if verdict["result"] in _FAILED else "WARNED"
    predicate = {
        "result": result,
        "configuration": [{"name": "policy", "digest": {"sha256": policy_digest}}],
        "passedTests": _named(findings, _PASSED),
        "failedTests": _named(findings, _FAILED),
        "warnedTests": [f["check"] for f in findings if f["result"] not in _PASSED | _FAILED],
    }
    return _statement([_subject(release.name, release.digest)], TEST_RESULT, predicate)


def pair_proof(pair: Pair, artifacts: Sequence[Artifact], evidence: Sequence[Evidence] = ()) -> bytes:
    """Return the canonical bytes of a statement about a proven pair: its record, its members' files, digests of findings."""
    predicate = {
        "pair": {"digest": {"sha256": pair.digest}, "record": pair.to_record()},
        "members": [
            {
                "kind": artifact.kind,
                "name": artifact.name,
                "digest": {"sha256": artifact.digest},
                "files": [{"name": f.path, "digest": {"sha256": f.sha256}} for f in artifact.files],
            }
            for artifact in artifacts
        ],
        "evidence": [{"kind": e.kind, "at": e.at, "digest": {"sha256": digest_of(e.payload)}} for e in evidence],
    }
    return _statement([_subject("pair", pair.digest)], PAIR, predicate)


def _named(findings: list[dict[str, Any]], results: frozenset[str]) -> list[str]:
    return [f["check"] for f in findings if f["result"] in results]


def _subject(name: str, digest: str) -> dict[str, Any]:
    return {"name": name, "digest": {"sha256": digest}}


def _statement(subject: list[dict[str, Any]], predicate_type: str, predicate: dict[str, Any]) -> bytes:
    return canonical({"_type": STATEMENT, "subject": subject, "predicateType": predicate_type, "predicate": predicate})
