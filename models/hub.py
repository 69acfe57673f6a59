"""Downloads model folders from the Hugging Face Hub."""

import os
import pathlib
import re
from typing import Any

import huggingface_hub
from huggingface_hub.errors import LocalEntryNotFoundError

from models.config import DecoderConfig
from models.hf import CARRIED, INDEX, WEIGHTS, file_layout

# Programs that only read a model, such as vLLM, do not download these files.
_LEGAL = ["LICENSE*", "NOTICE", "USE_POLICY.md"]
_HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*(@[\w./-]+)?")


def split_id(model: str) -> tuple[str, str | None]:
    """Splits OWNER/NAME@REVISION; the revision of other texts is None."""
    if not _HUB_ID.fullmatch(model):
        return model, None
    repository, _, revision = model.partition("@")
    return repository, revision or None


def resolve_folder(
    model: str | os.PathLike, *, described_in: pathlib.Path | None = None
) -> pathlib.Path:
    """Returns a model's local folder, after downloading it if `model` is a Hub id.

    Args:
      described_in: if set, weights are not downloaded. If the Hub's cache lacks them,
        the config and the tokenizer are downloaded to the folder `described_in`, which
        is returned.

    Raises:
      ValueError: `model` is neither a folder nor a Hub id that can be downloaded; an
        index in the cache is damaged; or `described_in` is None, and the config.json of
        a Hub model is missing, damaged or not supported.
    """
    folder = pathlib.Path(model).expanduser()
    if folder.is_dir():
        return folder
    text = str(model)
    if not _HUB_ID.fullmatch(text):
        raise ValueError(
            f"{text}: no such model folder; give a folder in Hugging Face format"
            " (python -m tools.convert --gguf converts a GGUF file), or a Hub id,"
            " OWNER/NAME or OWNER/NAME@REVISION"
        )
    if described_in is not None:
        if cached := _cached(text):
            return cached
        _fetch(text, local_dir=described_in)
        return described_in
    # Reject an unsupported architecture before the weights are downloaded.
    DecoderConfig.from_folder(_fetch(text))
    return _fetch(text, "*.safetensors", INDEX)


def _cached(model: str) -> pathlib.Path | None:
    """Returns the model's folder in the Hub's cache, or None if weights are missing."""
    repo, revision = split_id(model)
    for name in (WEIGHTS, INDEX):
        file = huggingface_hub.try_to_load_from_cache(repo, name, revision=revision)
        if isinstance(file, str):
            folder = pathlib.Path(file).parent
            # An interrupted download leaves the index without some of its files.
            layout = file_layout(folder) or {}
            if all((folder / name).is_file() for name in layout.values()):
                return folder
    return None


def _fetch(model: str, *patterns: str, **where: Any) -> pathlib.Path:
    repository, where["revision"] = split_id(model)
    where["allow_patterns"] = [*CARRIED, *patterns]
    try:
        try:
            found = huggingface_hub.snapshot_download(repository, **where)
        except LocalEntryNotFoundError:  # offline, and the cache lacks some of them
            found = huggingface_hub.snapshot_download(
                repository, ignore_patterns=_LEGAL, **where
            )
    # The client raises many types, with messages of several lines.
    except Exception as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(
            f"{model}: no such folder, and the download from the Hugging Face Hub"
            f" failed ({reason}); give the path of a folder or a correct Hub id,"
            " check the network and the free space of HF_HOME, or log in (`hf auth"
            " login`) if the model is gated or private"
        ) from None
    return pathlib.Path(found)
