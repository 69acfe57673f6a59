"""Judges for pool tests: some answers hang truly, kill the worker or eat memory."""

import os
import re
import time

from rl.verifier.worker import judge_answers


def judge(golds):
    """The real judge, but for answers that name a misdeed."""
    honest = judge_answers(golds)

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
        if answer == "eat memory":
            return bool(bytearray(8 << 30)), "ok"
        return honest(answer)

    return judge_one
