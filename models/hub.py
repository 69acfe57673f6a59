"""Model folders of the Hugging Face Hub, downloaded to its cache."""

import contextlib
import os
import pathlib
from collections.abc import Iterator
from typing import Any

from models.config import DecoderConfig
from models.hf import CARRIED, INDEX, WEIGHTS


def resolve_folder(
    model: str | os.PathLike, *, described_in: pathlib.Path | None = None
) -> pathlib.Path:
    """A local folder as it is, or a hub id downloaded to the cache.

    Args:
      model: the folder, or the id.
      described_in: gets all but the weights of a model whose weights are not in the
        cache, which stays as it is.

    Raises:
      ValueError: neither a folder nor a reachable hub id; or, before its weights are
        downloaded, of an architecture that is not built.
    """
    folder = pathlib.Path(model).expanduser()
    if folder.is_dir():
        return folder
    text = str(model)
    if text.count("/") != 1 or text.startswith((".", "/", "~")):
        raise ValueError(f"{text}: no such model folder; a hub id is OWNER/NAME")
    import huggingface_hub

    def fetch(*names: str, **where: Any) -> pathlib.Path:
        found = huggingface_hub.snapshot_download(
            text, allow_patterns=[*CARRIED, *names], **where
        )
        return pathlib.Path(found)

    with _one_line_errors(text):
        if described_in is not None:
            # Another program may have cached a part: of a description without its
            # generation config, stop tokens would be lost until the weights come.
            for name in (WEIGHTS, INDEX):
                cached = huggingface_hub.try_to_load_from_cache(text, name)
                if isinstance(cached, str):
                    return pathlib.Path(cached).parent
            return fetch(local_dir=described_in)
        described = fetch()
    # What is not built is refused before its weights travel.
    DecoderConfig.from_folder(described)
    with _one_line_errors(text):
        return fetch("*.safetensors", INDEX)


@contextlib.contextmanager
def _one_line_errors(model: str) -> Iterator[None]:
    """The hub's many types of errors, offline, private or misspelt, as one line."""
    try:
        yield
    except Exception as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(
            f"{model}: no such local folder, and the hub does not give it ({reason})"
        ) from None
