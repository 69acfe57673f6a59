"""Downloads evaluation sets and GSM8K from pinned public revisions.

python -m tools.fetch --list                    names, origins and licences
python -m tools.fetch NAME ... --out DATA       NAME: a set, or eval, train, all
python -m tools.fetch all --mirror http://HOST  from a server with the same paths

`tools.evaluate --data_dir DATA` reads DATA/eval/NAME.jsonl; training sets are in
DATA/train. If a file does not have the pinned hash, the command fails without writing
that set.
"""

import argparse
import csv
import dataclasses
import functools
import hashlib
import http.client
import json
import pathlib
import re
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

from configs.reading import output_folder
from rl import files
from tools import command

GITHUB = "https://raw.githubusercontent.com"
_TIMEOUT = 60.0  # seconds without a received byte
Row = dict[str, Any]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Describes the origin of a data set and how to read its file."""

    kind: str = "eval"  # or "train"
    repo: str  # OWNER/NAME on GitHub
    commit: str
    path: str  # path of the file in the repository
    sha256: str  # hash of the downloaded file
    licence: str  # licence of the repository, and of the problems if known
    # Converts a row to one with `problem` and `answer` or `answers`; None drops it.
    read: Callable[[Row], Row | None]


def _rows(name: str, data: bytes) -> list[Row]:
    """Parses JSON, JSON lines, CSV or an Arrow stream."""
    if data[:1] == b"[":
        return json.loads(data)
    if data.startswith(b"Question,"):
        rows = csv.DictReader(data.decode().splitlines())
        # Of rows with the same question and numbers, the last counts.
        return list({(row["Question"], row["Numbers"]): row for row in rows}.values())
    if data[:1] == b"{":
        return [json.loads(line) for line in data.decode().splitlines() if line]
    try:
        import pyarrow.ipc
    except ModuleNotFoundError:
        raise ValueError(
            f"{name}: an Arrow file, which needs pyarrow; run `pip install pyarrow`"
        ) from None
    return pyarrow.ipc.open_stream(data).read_all().to_pylist()


def _whole(number: Any) -> str:
    """Formats 142.0 as 142 and 025 as 25."""
    value = float(number)
    return str(int(value)) if value == int(value) else str(number)


def _numbers(row: Row) -> Row:
    return {"problem": row["problem"], "answer": _whole(row["answer"])}


def _minerva(row: Row) -> Row:
    answers = dict.fromkeys(map(str.strip, row["answer"]))
    return {"problem": row["problem"], "answers": list(answers)}


def _math500(row: Row) -> Row:
    kept = {key: row[key] for key in ("problem", "answer", "level", "solution")}
    return kept | {"meta": {"subject": row["subject"]}}


def _olympiad(row: Row) -> Row:
    meta = {key: row[key] for key in ("subfield", "unit", "error") if row[key]}
    return {"problem": row["question"], "answers": row["final_answer"], "meta": meta}


def _gsm8k(row: Row) -> Row:
    solution, _, answer = row["answer"].rpartition("####")
    found = {"problem": row["question"], "answer": answer.strip().replace(",", "")}
    return found | {"solution": solution.strip()}


def _svamp(row: Row, half: int | None = None) -> Row | None:
    body = row["Body"].strip()
    body += "" if body.endswith((".", "?", "!", ",")) else "."
    problem = f"{body} {row['Question'].strip()}"
    found = {"problem": problem, "answer": _whole(row["Answer"])}
    return found if half in (None, _hash_byte(found) % 2) else None


def _mawps_asdiv(row: Row) -> Row | None:
    """Converts problems with one operation on two whole numbers of at most 20.

    Keeps 49 in 256 of them, selected by a hash. Returns None for all other rows.
    """
    numbers = [_whole(number) for number in row["Numbers"].split()]
    small = len(numbers) == 2 and all(n.isdigit() and int(n) <= 20 for n in numbers)
    if not small or not re.fullmatch(r"[-+*/] number\d number\d", row["Equation"]):
        return None
    text = re.sub(r"number(\d)", lambda m: numbers[int(m[1])], row["Question"])
    text = re.sub(r" ([.,?!;:'])", r"\1", text)
    found = {"problem": text, "answer": _whole(row["Answer"])}
    return found if _hash_byte(found) < 49 else None


def _hash_byte(row: Row) -> int:
    return hashlib.sha256(row["problem"].encode()).digest()[0]


_harness = functools.partial(
    Source,
    repo="sail-sg/understand-r1-zero",
    commit="dfca49dd460ee7cc8e4a5a162c876a7fd6993b87",
    licence="MIT; problems (c) MAA",
    read=_numbers,
)
_gsm8k_set = functools.partial(
    Source,
    repo="openai/grade-school-math",
    commit="3101c7d5072418e28b9008a6636bde82a006892c",
    licence="MIT",
    read=_gsm8k,
)
_svamp_set = functools.partial(
    Source,
    repo="arkilpatel/SVAMP",
    commit="689d7ccac74b9983a2ac7cc3b264f441b99e7c53",
    path="SVAMP.json",
    sha256="5be77703a6d891ae476d7c082787ad361392aa02453b132516cdd5f4e7934e3e",
    licence="MIT",
)
SOURCES = {
    "aime2024": _harness(
        path="datasets/evaluation_suite/aime/data-00000-of-00001.arrow",
        sha256="861514ca0262d6c03d36d463ee33fe4465b0b85c0593f5df67bc75a717f50e5a",
    ),
    "amc83": _harness(
        path="datasets/evaluation_suite/amc/data-00000-of-00001.arrow",
        sha256="5e16d28683b95782686413eadd12560d051b2d4ac8aef456b500891ccabd5233",
    ),
    "math500": Source(
        repo="hkust-nlp/simpleRL-reason",
        commit="cf1c7858bfc145a27aa733e75d930d34f0d318a6",
        path="examples/simplelr_math_eval/data/math500/test.jsonl",
        sha256="35dc41080a3680858b27fa7e0533d2d547825316fc5dafe5d316f4ccc5a06132",
        licence="MIT, as MATH",
        read=_math500,
    ),
    "minerva272": _harness(
        path="datasets/evaluation_suite/minerva/data-00000-of-00001.arrow",
        sha256="23d05849fd365b9dae2ce5f6c4b6af3baecbbd0a88623abec3f0692d346bae2a",
        licence="MIT; problems of OpenCourseWare CC BY-NC-SA",
        read=_minerva,
    ),
    "olympiadbench675": Source(
        repo="QwenLM/Qwen2.5-Math",
        commit="a45202bd16f1ec06f433442dc1152d0074773465",
        path="evaluation/data/olympiadbench/test.jsonl",
        sha256="bb8c1e38a16ea9eacb77530315a674d883f267fbff79183effc53681b4fcc416",
        licence="MIT, as OlympiadBench",
        read=_olympiad,
    ),
    "gsm8k_test": _gsm8k_set(
        path="grade_school_math/data/test.jsonl",
        sha256="3730d312f6e3440559ace48831e51066acaca737f6eabec99bccb9e4b3c39d14",
    ),
    "svamp1000": _svamp_set(read=_svamp),
    "svamp_dev": _svamp_set(read=functools.partial(_svamp, half=0)),
    "svamp_test": _svamp_set(read=functools.partial(_svamp, half=1)),
    "mawps_asdiv": _svamp_set(
        path="data/mawps-asdiv-a_svamp/train.csv",
        sha256="c761cdc6390a67a285c6c346a2931f61bc8f47430eceaeb123cc3d0263efa821",
        read=_mawps_asdiv,
    ),
    "gsm8k_train": _gsm8k_set(
        kind="train",
        path="grade_school_math/data/train.jsonl",
        sha256="17f347dc51477c50d4efb83959dbb7c56297aba886e5544ee2aaed3024813465",
    ),
}


def fetch(name: str, out: pathlib.Path, *, mirror: str = GITHUB) -> Row:
    """Downloads the set `name` of `SOURCES` into the folder `out`.

    Returns the origin, hash, licence and number of rows, and the path of the new file.

    Raises:
      ValueError: the download failed, has another hash or needs pyarrow; nothing was
        written.
    """
    source = SOURCES[name]
    url = f"{mirror.rstrip('/')}/{source.repo}/{source.commit}/{source.path}"
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT) as answer:
            data = answer.read()
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise ValueError(
            f"{url}: download failed ({reason}); try another --mirror"
        ) from None
    digest = hashlib.sha256(data).hexdigest()
    if digest != source.sha256:
        raise ValueError(
            f"{name}: {url} has SHA-256 {digest[:12]}, but the pinned file has"
            f" {source.sha256[:12]}; try another --mirror"
        )
    rows = [
        {"id": f"{name}-{i:05d}"} | row | {"source": name}
        for i, row in enumerate(filter(None, map(source.read, _rows(name, data))))
    ]
    path = out / source.kind / f"{name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    files.replace_rows(path, rows)
    return {
        "from": f"https://github.com/{source.repo}/blob/{source.commit}/{source.path}",
        "sha256": source.sha256,
        "licence": source.licence,
        "rows": len(rows),
        "file": str(path),
    }


def main(argv: list[str] | None = None) -> int:
    parser = command.make_parser(__doc__)
    add = parser.add_argument
    add("names", nargs="*", help="sets, or: eval, train, all")
    add("--list", action="store_true", help="list the sets and exit")
    add("--out", type=output_folder, default="data", help="data folder (default: data)")
    add("--mirror", default=GITHUB, help="URL in place of raw.githubusercontent.com")
    arguments = parser.parse_args(argv)
    if not (arguments.names or arguments.list):
        parser.error("no set is given; --list shows the names")
    return command.run(_list if arguments.list else _fetch_all, arguments)


def _list(arguments: argparse.Namespace) -> dict[str, str]:
    for name, s in SOURCES.items():
        print(f"{name:<18}{s.kind:<7}{s.licence}")
        print(f"{'':<18}{s.repo} at {s.commit[:12]}: {s.path}")
    return {name: s.repo for name, s in SOURCES.items()}


def _fetch_all(arguments: argparse.Namespace) -> dict[str, Row]:
    wanted: list[str] = []
    for name in arguments.names:
        of_kind = [n for n, s in SOURCES.items() if name in (s.kind, "all")]
        if not of_kind and name not in SOURCES:
            known = ", ".join([*SOURCES, "eval", "train", "all"])
            raise ValueError(f"set {name!r}: must be one of {known}")
        wanted += of_kind or [name]
    result = {}
    for name in dict.fromkeys(wanted):
        entry = result[name] = fetch(name, arguments.out, mirror=arguments.mirror)
        print(f"{entry['file']}: {entry['rows']:,} problems, {entry['licence']}")
        print(f"  from {entry['from']}", flush=True)
    return result


if __name__ == "__main__":
    sys.exit(main())
