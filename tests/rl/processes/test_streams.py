"""A run continues when nothing reads its output any more."""

import os
import subprocess
import sys

import pytest

from tests.other_processes import python, start_python

WORK = """
import pathlib, sys
from rl.processes.streams import outlast_output
outlast_output()
for i in range(100_000):
    print("x" * 80)
    if i % 1000 == 0:
        print("y" * 80, file=sys.stderr, flush=True)
sys.stdout.flush()
pathlib.Path(sys.argv[1]).write_text("done")
"""


@pytest.mark.failure(67)
def test_a_broken_pipe_does_not_end_the_process(tmp_path):
    done = tmp_path / "done"
    reader, writer = os.pipe()
    process = start_python("-c", WORK, done, stdout=writer, stderr=writer)
    os.close(writer)
    os.read(reader, 10)
    os.close(reader)
    assert process.wait(60) == 0
    assert done.read_text() == "done"


@pytest.mark.failure(99)
def test_closed_streams_do_not_end_the_process(tmp_path):
    done = tmp_path / "done"
    # A file that is opened later must not get the number of a closed stream.
    check = f"assert open({str(tmp_path / 'log')!r}, 'w').fileno() > 2\n"
    code = WORK.replace("for i", f"{check}for i")
    close = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh"]
    ended = subprocess.run([*close, sys.executable, "-c", code, str(done)])
    assert ended.returncode == 0 and done.read_text() == "done"


def test_a_terminal_that_is_not_utf_8_does_not_end_the_process():
    code = (
        "from rl.processes.streams import outlast_output; outlast_output();"
        "print('caf\\xe9 \\u2211')"
    )
    env = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = python("-c", code, env=env, check=True)
    assert done.stdout == "caf\\xe9 \\u2211\n"
