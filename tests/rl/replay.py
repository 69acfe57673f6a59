"""A sampler whose completions are a known function of seed, prompt and sample."""

import numpy as np

from rollout.types import Completion


class Replay:
    """Draws `text_of(prompt text, prompt index, sample, seed)`, one token a character.

    A completion that does not fit `max_tokens` is cut there. They end in reverse order.

    Attributes:
      asked: (prompt texts, params, seed) of each call.
      stop_after: completions reported before a KeyboardInterrupt, or None.
    """

    def __init__(self, text_of, *, stop_after=None):
        self.text_of = text_of
        self.stop_after = stop_after
        self.asked = []

    def sample(self, prompts, params, *, seed, on_finished=None):
        texts = ["".join(map(chr, prompt)) for prompt in prompts]
        self.asked.append((texts, params, seed))

        def drawn(i, j):
            return _cut(self.text_of(texts[i], i, j, seed), params.max_tokens)

        groups = [[drawn(i, j) for j in range(params.n)] for i in range(len(texts))]
        for i in reversed(range(len(prompts))):
            for j in reversed(range(params.n)):
                if self.stop_after == 0:
                    raise KeyboardInterrupt
                if self.stop_after is not None:
                    self.stop_after -= 1
                on_finished(i, j, groups[i][j])
        return groups

    def close(self):
        pass


def encode(text):
    return [ord(c) for c in text]


def decode(ids):
    return "".join(map(chr, ids))


def _cut(text, max_tokens):
    ids = np.array(encode(text)[:max_tokens], np.int32)
    return Completion(
        token_ids=ids,
        sampler_logprobs=np.zeros(len(ids), np.float32),
        finish_reason="length" if len(text) > max_tokens else "stop",
        versions=np.zeros(len(ids), np.int32),
    )
