"""Provides the commands around training; see `python -m tools.NAME --help`.

    evaluate, perplexity, grade, verify         measure models and answers
    fetch, curate                               make data sets
    ablate, report, plan, bench                 compare and plan runs
    convert, checkpoint                         convert models and checkpoints
    check_objective, gpu_check                  test a loss and a GPU

A bad flag or file ends a command with an error message. Start reading at `evaluate`.
"""

import signal
import sys

if sys.argv[0] == "-m":  # until the command's module is loaded
    # Ctrl-C during imports must not print a traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from rl import packages  # noqa: E402

packages.check()
