"""Reads and writes files that survive a crash of the process or the machine.

After a crash, a replaced file has its old or its new content; see `Rows` for appended
files. Errors of failed writes name the file.
"""

import codecs
import concurrent.futures
import contextlib
import fcntl
import hashlib
import itertools
import json
import os
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from configs.schema import violation

MAX_LINE_BYTES = 16 * 2**20
HUB = "hf://"  # prefix of files on the Hugging Face Hub
# First bytes of files that users give instead of JSONL, and what to do with them.
_NOT_JSONL = {
    b"\x1f\x8b": "is compressed with gzip; decompress it with `gunzip`",
    b"\x28\xb5\x2f\xfd": "is compressed with Zstandard; decompress it with `unzstd`",
    b"PK\x03\x04": "is a ZIP archive; unpack it with `unzip`",
    b"PAR1": "is a Parquet file; convert it with python -m tools.curate",
    b"\xff\xfe": "is UTF-16; convert it to UTF-8 with `iconv -f UTF-16 -t UTF-8`",
    b"\xfe\xff": "is UTF-16; convert it to UTF-8 with `iconv -f UTF-16 -t UTF-8`",
    b"version https://git-lfs": "is a Git LFS pointer; run `git lfs pull`",
}


@contextlib.contextmanager
def locked(folder: pathlib.Path) -> Iterator[None]:
    """Makes a folder and locks it in the `with` block; raises OSError if that fails."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BlockingIOError(
                f"{folder}: another process writes to this folder; wait for its end or"
                " use another folder"
            ) from None
        except OSError as error:
            raise OSError(
                f"{folder}: the file system cannot lock files ({error.strerror});"
                " mount it with lock support, or use a folder of another file system"
            ) from None
        yield


def replace(path: pathlib.Path, text: str) -> None:
    """Writes a file atomically: readers see the old or the new content."""
    part = path.with_name(f".{path.name}.part")
    try:
        with named(path):
            part.write_text(text, encoding="utf-8")
        publish(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def replace_json(path: pathlib.Path, value: Any) -> None:
    replace(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def read_json(path: pathlib.Path) -> Any:
    with damaged(path, "restore it, or use another folder"):
        return json.loads(path.read_text("utf-8"))


@contextlib.contextmanager
def damaged(path: pathlib.Path, advice: str) -> Iterator[None]:
    """Replaces parse errors in the `with` block by a ValueError with `advice`."""
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else error
        raise ValueError(f"{path}: damaged ({reason}); {advice}") from None


def replace_rows(path: pathlib.Path, rows: Iterable[Mapping[str, Any]]) -> None:
    replace(path, "".join(map(json_line, rows)))


def publish(part: pathlib.Path, path: pathlib.Path) -> None:
    """Flushes a finished file to the disk, then renames it from `part` to `path`."""
    with named(path):
        sync(part)
        os.replace(part, path)
        sync(path.parent)


class Rows:
    """Appends rows to a JSONL file.

    First removes an incomplete last row, and the rows for which `keep(row)` is false.
    `fields` is as in `read_rows`. After `write` the rows survive a crash of the
    process; after `close`, also a crash of the machine.
    """

    def __init__(
        self,
        path: pathlib.Path,
        keep: Callable[[Mapping[str, Any]], bool] = lambda row: True,
        *,
        fields: Mapping[str, Any] | None = None,
    ):
        self._path = path
        if path.exists() and path.stat().st_size:
            rows = read_rows(path, appended=True, fields=fields)
            replace_rows(path, (row for _, row in rows if keep(row)))
        self._file = path.open("a", encoding="utf-8")

    def write(self, *rows: Mapping[str, Any]) -> None:
        with named(self._path):
            self._file.writelines(map(json_line, rows))
            self._file.flush()

    def close(self) -> None:
        with named(self._path), self._file:
            self._file.flush()
            os.fsync(self._file.fileno())


def json_line(row: Mapping[str, Any]) -> str:
    """Returns a row as a line of JSON, with null for NaN and infinity."""
    line = json.dumps(row, ensure_ascii=False)
    if "NaN" in line or "Infinity" in line:  # perhaps in a text
        finite = json.loads(line, parse_constant=lambda name: None)
        line = json.dumps(finite, ensure_ascii=False)
    return line + "\n"


def read_rows(
    path: pathlib.Path,
    *,
    appended: bool = False,
    fields: Mapping[str, Any] | None = None,
    advice: str = "restore the file, or delete this row",
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields `("PATH:LINE", object)` for each line of a JSONL file, except blank ones.

    `appended` is for files of `Rows`: the file may be missing, and an incomplete last
    row is ignored. `fields` has the type of each field that is used; a missing field is
    None. Raises ValueError if a line is too long or not a JSON object, or, with
    `advice`, if a field has another type.
    """
    if appended and not path.exists():
        return
    with path.open("rb") as file:
        for number in itertools.count(1):
            if not (line := file.readline(MAX_LINE_BYTES + 1)):
                return
            where = f"{path}:{number}"
            if number == 1:
                line = line.removeprefix(codecs.BOM_UTF8)
                for start, fault in _NOT_JSONL.items():
                    if line.startswith(start):
                        raise ValueError(f"{path}: {fault}")
            if len(line) > MAX_LINE_BYTES:
                raise ValueError(
                    f"{where}: line longer than {MAX_LINE_BYTES // 2**20} MiB; give a"
                    " JSONL file, with one row per line"
                )
            if not line.strip():
                continue
            try:
                row = _parsed(line, where)
            except ValueError:
                if appended and not line.endswith(b"\n"):
                    return
                raise
            for name, hint in (fields or {}).items():
                if wrong := violation(value := row.get(name), hint):
                    raise ValueError(
                        f"{where}: {name}={value!r:.60}: must {wrong}; {advice}"
                    )
            yield where, row


def visible(folder: pathlib.Path, pattern: str) -> list[pathlib.Path]:
    """Returns the sorted paths in a folder that match a pattern, except hidden ones.

    Hidden files and folders belong to other programs: .DS_Store and ._NAME of macOS,
    .nfs0123 of NFS, .ipynb_checkpoints/ of Jupyter.
    """
    paths = ((p, p.relative_to(folder).parts) for p in sorted(folder.glob(pattern)))
    return [p for p, parts in paths if not any(part[0] == "." for part in parts)]


def sha256(path: pathlib.Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_of_each(paths: Iterable[pathlib.Path]) -> list[str]:
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(sha256, paths))


def fetched(name: str) -> pathlib.Path:
    """Returns the local path of a file; first downloads it if `name` is on the Hub.

    `name` is a path, in which `~` and environment variables are expanded. For a file of
    a Hugging Face data set, `name` is `hf://OWNER/DATASET/PATH` or
    `hf://OWNER/DATASET@REVISION/PATH`. Raises ValueError if an `hf://` name has another
    form or the download fails.
    """
    if not name.startswith(HUB):
        return pathlib.Path(os.path.expandvars(name)).expanduser()
    import huggingface_hub
    from huggingface_hub.errors import HfHubHTTPError

    parts = name.removeprefix(HUB).split("/", 2)
    if len(parts) != 3:
        raise ValueError(f"{name}: must be hf://OWNER/DATASET/PATH")
    owner, (dataset, _, revision), path = parts[0], parts[1].partition("@"), parts[2]
    try:
        file = huggingface_hub.hf_hub_download(
            f"{owner}/{dataset}", path, repo_type="dataset", revision=revision or None
        )
    except (HfHubHTTPError, OSError, ValueError) as error:
        reason = " ".join(str(error).split())[:160]
        raise ValueError(
            f"{name}: could not be downloaded ({reason}); check the name and the"
            " network, or give a local file"
        ) from None
    return pathlib.Path(file)


def markdown_table(
    header: Sequence[str], rows: Iterable[Sequence[str]], align: str = ""
) -> list[str]:
    """Returns the lines of a Markdown table, followed by a blank line.

    `align` has one character per column: `<` aligns left (the default), `>` right.
    """

    def line(cells: Iterable[str]) -> str:
        plain = (cell.replace("|", "\\|").replace("\n", "<br>") for cell in cells)
        return "| " + " | ".join(plain) + " |"

    marks = ["---:" if a == ">" else "---" for a in align or "<" * len(header)]
    return [line(header), line(marks), *map(line, rows), ""]


def _parsed(line: bytes, where: str) -> dict[str, Any]:
    try:
        row = json.loads(line.decode(), object_pairs_hook=_distinct)
        if b"\\u" in line:  # an escape may be half of a surrogate pair
            json.dumps(row, ensure_ascii=False).encode()
    except UnicodeDecodeError as error:
        at = f"byte 0x{line[error.start]:02x} in column {error.start + 1}"
        raise ValueError(f"{where}: not UTF-8, {at}; convert the file") from None
    except UnicodeEncodeError as error:
        half = error.object[error.start]
        raise ValueError(
            f"{where}: contains {half!r}, half of a surrogate pair; remove it"
        ) from None
    except (ValueError, RecursionError) as error:
        reason = str(getattr(error, "msg", error)).partition(";")[0]
        if isinstance(error, RecursionError):
            reason = "nested too deeply"
        if line.strip() in (b"[", b"{"):
            reason = "a value spans several lines; each line must be an object"
        start = line[:60].decode(errors="replace")
        raise ValueError(
            f"{where}: not JSON ({reason}); correct the row {start!r}"
        ) from None
    if not isinstance(row, dict):
        raise ValueError(f"{where}: a row must be an object, not {type(row).__name__}")
    return row


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in row if names.count(name) > 1)
        raise ValueError(f"the key {twice!r} occurs twice")
    return row


def sync(path: pathlib.Path) -> None:
    """Waits until a file's content, or a folder's entries, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def named(path: pathlib.Path) -> Iterator[None]:
    """Adds `path` to OSErrors of the `with` block, since failed writes lack a name."""
    try:
        yield
    except OSError as error:
        error.filename = str(path)
        raise
