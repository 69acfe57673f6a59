"""Log-probabilities of texts, against transformers."""

import numpy as np
import pytest
import torch
import transformers

from tests.tools.tiny import make_model
from tools.logprobs import logprobs

TEXTS = ["thesumof12and7is19", "1+1=2", "abc"]


def test_they_are_those_of_transformers(tmp_path):
    folder = make_model(tmp_path / "model")
    found = logprobs(folder, TEXTS, dtype="float32")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    for text, scored in zip(TEXTS, found, strict=True):
        ids = torch.tensor([tokenizer.encode(text)])
        assert scored.token_ids.tolist() == ids[0].tolist()
        assert "".join(scored.tokens) == text
        with torch.no_grad():
            logits = model(ids).logits.log_softmax(-1)
        expected = logits[0, :-1].gather(1, ids[0, 1:, None])[:, 0].numpy()
        assert np.isnan(scored.logprobs[0])
        np.testing.assert_allclose(scored.logprobs[1:], expected, atol=1e-4)


@pytest.mark.parametrize("texts", [[], [""]])
def test_without_a_text_it_is_refused(texts):
    with pytest.raises(ValueError, match="at least one text must not be empty"):
        logprobs("unused", texts)
