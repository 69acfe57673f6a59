"""The end of every command: a result, an error or a signal."""

import pytest

from tests.other_processes import python

INTERRUPTED = """
import os, signal
from tools import command

def work(arguments):
    os.kill(os.getpid(), signal.SIGINT)

command.run(work, command.make_parser("").parse_args([]))
"""


@pytest.mark.failure(144)
def test_ctrl_c_is_one_line_and_has_its_status():
    done = python("-c", INTERRUPTED)
    assert done.returncode == 130
    assert "stopped; the same command resumes or starts again\n" in done.stderr
    assert "Traceback" not in done.stderr
