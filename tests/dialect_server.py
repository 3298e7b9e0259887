"""A server of vLLM's dialect around an in-memory endpoint, so that a broken rule can be verified over HTTP."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from specops.core.fidelity_atoms import Sampling
from specops.core.fidelity_sample import Ask


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        """Keep the tests' output clean."""

    def do_GET(self):
        """Answer /server_info and /v1/models."""
        facts = self.server.endpoint.facts()
        if self.path == "/server_info" and not facts:
            return self._json({"error": {"message": "Not Found"}}, 404)
        if self.path == "/server_info?config_format=json":
            return self._json(self.server.endpoint.described)
        return self._json(facts if self.path == "/server_info" else {"data": []})

    def do_POST(self):
        """Answer /tokenize and /v1/completions."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/tokenize":
            return self._json({"tokens": list(self.server.endpoint.encode(body["prompt"]))})
        if "prompt_logprobs" in body:
            return self._score(body["prompt"], body["prompt_logprobs"])
        if "logprobs" in body and not self.server.reports_logs:
            return self._json({"error": {"message": "logprobs is not supported"}}, 400)
        asked = {key: body[key] for key in ("temperature", "top_p", "top_k") if key in body}
        sampling = Sampling(**asked) if body["temperature"] else None
        ask = Ask(prompt_ids=tuple(body["prompt"]), max_tokens=body["max_tokens"], seed=body["seed"], sampling=sampling)
        found = self.server.endpoint.sample([ask], 1)[0]
        rounds = [[3, size - 1] for size in found.blocks[1:]]
        return self._stream(found.token_ids, rounds)

    def _stream(self, tokens, rounds):
        choice = {"text": "".join(map(chr, (97 + token for token in tokens))), "finish_reason": "length"}
        if self.server.reports_ids:
            choice["token_ids"] = list(tokens)
        event = {"choices": [choice], "usage": {"prompt_tokens": 1, "completion_tokens": len(tokens)}}
        if rounds:
            event["metrics"] = {
                "speculative_decoding": {
                    "num_spec_steps": len(rounds),
                    "num_draft_tokens": sum(drafted for drafted, _ in rounds),
                    "num_accepted_draft_tokens": sum(accepted for _, accepted in rounds),
                    "acceptance_histogram": [sum(accepted == n for _, accepted in rounds) for n in range(4)],
                    "per_step_drafted": [drafted for drafted, _ in rounds],
                    "per_step_accepted": [accepted for _, accepted in rounds],
                }
            }
        raw = b"data: " + json.dumps(event).encode() + b"\n\ndata: [DONE]\n\n"
        self._send(raw, "text/event-stream", 200)

    def _score(self, texts, top):
        choices = []
        found = self.server.endpoint.score(list(map(tuple, texts)), top, 1)
        for index, (text, scored) in enumerate(zip(texts, found, strict=True)):
            rows = [None]
            for token, ids, logs, chosen in zip(text[1:], scored.ids, scored.logs, scored.chosen, strict=True):
                best = enumerate(zip(ids, logs, strict=True), 1)
                row = {str(i): {"logprob": float(log), "rank": rank} for rank, (i, log) in best}
                row.setdefault(str(token), {"logprob": float(chosen), "rank": len(ids) + 1})
                rows.append(row)
            choices.append({"index": index, "text": "", "prompt_logprobs": rows})
        self._json({"choices": choices})

    def _json(self, value, status=200):
        self._send(json.dumps(value).encode(), "application/json", status)

    def _send(self, raw, kind, status):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)


class _Server(ThreadingHTTPServer):
    request_queue_size = 128
    daemon_threads = True


@contextmanager
def served(endpoint, *, reports_ids=True, reports_logs=False):
    """Serve an endpoint on a free port; yield its URL."""
    server = _Server(("127.0.0.1", 0), _Handler)
    server.endpoint, server.reports_ids, server.reports_logs = endpoint, reports_ids, reports_logs
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
