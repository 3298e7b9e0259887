"""What servers say about themselves, from a real socket."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from specops.adapters.running_server import MAX_BODY_BYTES, import_server
from specops.errors import EngineUnavailable, InvalidInput

MODELS = {"data": [{"id": "m", "root": "/models/m", "max_model_len": 128, "created": 1, "permission": [{"id": "random"}]}]}


@pytest.fixture
def serve():
    """Return a function that serves answers by path: (status, body); it gives the base URL."""
    servers = []

    def start(answers):
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                status, body = answers.get(self.path.partition("?")[0], (404, b"{}"))
                body = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                if status == 302:
                    self.send_header("Location", "http://127.0.0.1:1/")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def test_all_that_a_server_says_is_a_claim(serve):
    """Names and settings, no properties; what cannot be seen is said."""
    info = {"speculative_config": {"method": "ngram"}, "system_env": {"HF_TOKEN": "secret", "PATH": "/bin"}}
    url = serve({"/v1/models": (200, MODELS), "/version": (200, {"version": "0.32.0"}), "/server_info": (200, info)})

    found = import_server(url, name="prod")

    artifact = found.artifacts[0]
    assert artifact.properties == {}
    assert artifact.claims["version"] == {"version": "0.32.0"}
    assert artifact.claims["server_info"]["system_env"] == {"PATH": "/bin"}
    assert "secret" not in str(found)
    assert "draft weights are not visible" in found.notes[-1]


def test_the_same_server_gives_the_same_artifact(serve):
    """Times and random ids of /v1/models are left out."""
    other = json.loads(json.dumps(MODELS))
    other["data"][0] |= {"created": 2, "permission": []}

    first, second = (import_server(serve({"/v1/models": (200, said)}), name="x").artifacts[0] for said in (MODELS, other))

    assert first.digest == second.digest


def test_a_server_outside_development_mode_has_no_server_info(serve):
    """404 is fine and is said."""
    found = import_server(serve({"/v1/models": (200, MODELS)}), name="x")

    assert any("/server_info is not served" in note for note in found.notes)


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ({}, "no /v1/models"),
        ({"/v1/models": (500, b"")}, "answered HTTP 500"),
        ({"/v1/models": (302, b"")}, "redirects are not followed"),
        ({"/v1/models": (200, b"<html>")}, "sent no JSON"),
        ({"/v1/models": (200, b"[" * 50_000)}, "sent no JSON"),
        ({"/v1/models": (200, b"[" * 200 + b"]" * 200)}, "cannot be kept"),
        ({"/v1/models": (200, b" " * (MAX_BODY_BYTES + 1))}, "more than"),
    ],
)
def test_what_is_no_server_of_the_dialect_is_refused(serve, answers, message):
    """Bounded in size and depth, redirects refused."""
    with pytest.raises(EngineUnavailable, match=message):
        import_server(serve(answers), name="x")


def test_no_server_and_no_address():
    """A closed port can be tried again, a wrong address cannot."""
    with pytest.raises(EngineUnavailable, match="did not answer"):
        import_server("http://127.0.0.1:1", name="x", timeout_s=1.0)
    with pytest.raises(InvalidInput, match="not the address of a server"):
        import_server("ftp://x", name="x")
