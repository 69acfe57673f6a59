"""Fetching from a server on this machine: a mirror, in effect."""

import functools
import hashlib
import http.server
import json
import re
import threading

import pytest

from rl.problems.reading import load_problems
from tools import fetch
from tools.evaluation.benchmarks import BENCHMARKS
from tools.fetch import SOURCES

pyarrow = pytest.importorskip("pyarrow")


def arrow(rows):
    table = pyarrow.Table.from_pylist(rows)
    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


# A row or two in the form of each source, and the problem and answers they hold.
OLYMPIAD = {"question": "How far?", "subfield": "Algebra", "error": "1e-1"}
OLYMPIAD |= {"final_answer": ["4.2"], "unit": None}
SVAMP = {"Body": "Ann has 3 apples", "Question": "How many?", "Answer": 3.0}
MATH = {"problem": "2x=4", "answer": "2", "level": 1, "solution": "s", "subject": "A"}
HALVES = json.dumps([SVAMP | {"Body": "B"}, SVAMP | {"Body": "D"}]).encode()
FORMS = {
    "aime2024": (arrow([{"problem": "A", "answer": "025"}]), "A", ("25",)),
    "amc83": (arrow([{"problem": "B", "answer": 142.0}]), "B", ("142",)),
    "math500": (lines([MATH]), "2x=4", ("2",)),
    "minerva272": (
        arrow([{"problem": "C", "answer": ["9.6\n", "9", "9.6"]}]), "C", ("9.6", "9"),
    ),
    "olympiadbench675": (lines([OLYMPIAD]), "How far?", ("4.2",)),
    "gsm8k_test": (
        lines([{"question": "D", "answer": "So.\n#### 1,024"}]), "D", ("1024",),
    ),
    "svamp1000": (
        json.dumps([SVAMP]).encode(), "Ann has 3 apples. How many?", ("3",),
    ),
    "svamp_dev": (HALVES, "D. How many?", ("3",)),
    "svamp_test": (HALVES, "B. How many?", ("3",)),
    "mawps_asdiv": (
        b"Question,Numbers,Equation,Answer\n"
        b"number0 of number1 pens ?,2.0 30.0,* number0 number1,60.0\n"  # larger
        b"number0 of number1 pens ?,5.0 5.0,* number0 number1,25.0\n"  # by its hash
        b"number0 of number1 pens ?,2.0 6.0,* number0 number1,12.0\n",
        "2 of 6 pens?", ("12",),
    ),
}  # fmt: skip


@pytest.fixture
def mirror():
    """Serves what is put into the dictionary, by path."""
    held = {}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            data = held.get(self.path)
            self.send_response(404 if data is None else 200)
            self.end_headers()
            self.wfile.write(data or b"")

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    # It looks every 10 ms whether it is to end.
    serve = functools.partial(server.serve_forever, 0.01)
    threading.Thread(target=serve, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", held
    server.shutdown()


def pin(monkeypatch, held, name, data):
    """Serves `data` where the source is looked for, as the pinned file."""
    source = SOURCES[name]
    held[f"/{source.repo}/{source.commit}/{source.path}"] = data
    digest = hashlib.sha256(data).hexdigest()
    pinned = {field: getattr(source, field) for field in source.__slots__}
    monkeypatch.setitem(SOURCES, name, fetch.Source(**pinned | {"sha256": digest}))


@pytest.mark.parametrize("name", FORMS)
def test_each_form_is_read(tmp_path, monkeypatch, mirror, name):
    url, held = mirror
    data, problem, answers = FORMS[name]
    pin(monkeypatch, held, name, data)
    out = tmp_path / "out.json"
    command = [name, "--out", str(tmp_path), "--mirror", url + "/", "--json", str(out)]
    assert fetch.main(command) == 0
    found = json.loads(out.read_text())[name]
    assert found["file"] == str(tmp_path / SOURCES[name].kind / f"{name}.jsonl")
    (row,) = load_problems(found["file"], key="x")
    assert (row.problem, row.answers) == (problem, answers)
    assert found["from"].startswith(f"https://github.com/{SOURCES[name].repo}/blob/")
    assert found["licence"] and found["rows"] == 1
    if name == "olympiadbench675":
        assert row.meta["error"] == "1e-1"


def test_every_source_is_pinned_and_tried():
    assert {n for n, b in BENCHMARKS.items() if b.sha256} <= set(SOURCES)
    # gsm8k_train is of the form of gsm8k_test
    assert set(FORMS) == set(SOURCES) - {"gsm8k_train"}
    for source in SOURCES.values():
        assert len(source.commit) == 40 and len(source.sha256) == 64


@pytest.mark.failure(33)
def test_what_cannot_be_had_is_one_line_and_leaves_nothing(
    tmp_path, monkeypatch, mirror, capsys
):
    url, held = mirror
    pin(monkeypatch, held, "minerva272", FORMS["minerva272"][0])
    source = SOURCES["minerva272"]
    held[f"/{source.repo}/{source.commit}/{source.path}"] += b"x"
    for name, at, message in (
        ("minerva272", url, "http.* has SHA-256 .*, but the pinned file has"),
        ("amc83", url, "amc/data.* download failed .*Not Found"),
        ("amc83", "http://127.0.0.1:9", "download failed .*refused"),
        ("amc83", "no url", r"download failed \(unknown url type"),
        ("amc84", url, "set 'amc84': must be one of aime2024, "),
    ):
        assert fetch.main([name, "--mirror", at, "--out", str(tmp_path / "data")]) == 2
        error = capsys.readouterr().err
        assert re.search(message, error) and error.count("\n") == 1
    assert not (tmp_path / "data").exists()
