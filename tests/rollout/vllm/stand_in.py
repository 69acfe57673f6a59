"""A server that answers like vLLM, with random tokens instead of a model's.

    python stand_in.py MODULE --port N --served-model-name NAME --max-model-len N ...

A token depends on the prompt, the request's seed and its place; an aborted request has
those of its tokens that it had time for. A field of sampling
that a request leaves out is filled in from DEFAULTS, as vLLM does from a model folder's
generation_config.json. Standard library only.
"""

import argparse
import http.server
import json
import random
import threading
import time

DEFAULTS = {"repetition_penalty": 1.1, "top_k": 20, "temperature": 0.3, "top_p": 0.8}
VOCABULARY = 96
SECONDS = 0.002, 0.006  # that a token takes


def draw(prompt, seed, sampling):
    """Tokens and log-probabilities; a default that was filled in changes both."""
    filled = {**DEFAULTS, **sampling}
    changed = sorted(key for key in DEFAULTS if key not in sampling)
    rng = random.Random(repr((prompt, seed, [filled[key] for key in changed])))
    count = sampling["max_tokens"]
    ids = [rng.randrange(VOCABULARY) for _ in range(count)]
    return ids, [-rng.random() for _ in range(count)]


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/none":
            return self.send_error(404)
        options = self.server.options
        name, length = options.served_model_name, options.max_model_len
        self._answer({"data": [{"id": name, "max_model_len": length}]})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        aborts = self.server.aborts
        if self.path.endswith("/abort_requests"):
            for name in body["request_ids"]:
                if name in aborts:
                    aborts[name].set()
            return self._answer({})
        sampling = body["sampling_params"]
        name = f"generate-tokens-{body.get('request_id')}"
        aborted = aborts[name] = threading.Event()
        count, began = sampling["max_tokens"], time.monotonic()
        pace = random.uniform(*SECONDS)
        reason = "abort" if aborted.wait(count * pace) else "length"
        if reason == "abort":
            count = min(count - 1, int((time.monotonic() - began) / pace))
        ids, logprobs = draw(body["token_ids"], sampling["seed"], sampling)
        logprobs = {"content": [{"logprob": x} for x in logprobs[:count]]}
        choice = {"token_ids": ids[:count], "logprobs": logprobs}
        self._answer({"choices": [choice | {"finish_reason": reason}]})

    def _answer(self, value):
        text = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int)
    parser.add_argument("--served-model-name")
    parser.add_argument("--max-model-len", type=int)
    options, _ = parser.parse_known_args()
    address = ("127.0.0.1", options.port)
    with http.server.ThreadingHTTPServer(address, Handler) as server:
        server.options, server.aborts = options, {}
        server.serve_forever()


if __name__ == "__main__":
    main()
