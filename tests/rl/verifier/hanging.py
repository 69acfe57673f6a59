"""Judges for pool tests: some answers hang truly, kill the worker or eat memory."""

import os
import pathlib
import re
import time

from rl.verifier import Verdict
from rl.verifier.pool import examine


def judge(golds, problem):
    """The real judge, but for answers that name a misdeed."""
    honest = examine(golds, problem)

    def judge_one(answer):
        if answer == "hang in python":
            while True:
                pass
        if answer == "hang in c":
            # Exponential backtracking: one C call that never returns.
            re.match(r"(a+)+$", "a" * 60 + "b")
        if answer == "sleep":
            time.sleep(3600)
        if answer == "die":
            os._exit(9)
        if answer.startswith("die once "):
            marker = pathlib.Path(answer.removeprefix("die once "))
            if not marker.exists():
                marker.touch()
                os._exit(9)
        if answer == "who":
            return Verdict(True, answer, "text", str(os.getpgid(0)))
        if answer == "eat memory":
            return Verdict(bool(bytearray(8 << 30)), answer, "number")
        return honest(answer)

    return judge_one
