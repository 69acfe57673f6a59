"""Shows runs in one HTML page that needs no network: `python -m tools.report WORKDIR`.

Several workdirs are compared; runs that differ in their seed alone are one arm. A run
that goes on is shown as far as it is. Nothing that a workdir names is imported or run.
"""

import argparse
import pathlib
import sys
from collections.abc import Sequence

from configs.reading import user_path
from rl import files
from tools.report.health import findings
from tools.report.reading import read_runs
from tools.report.sections import page


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tools.report",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("workdir", type=user_path, nargs="+", metavar="WORKDIR")
    parser.add_argument(
        "--out",
        type=user_path,
        default=pathlib.Path("report.html"),
        help="the page; report.html by default",
    )
    parser.add_argument("--json", type=user_path, help="write the findings here")
    args = parser.parse_args(argv)
    try:
        runs = read_runs(args.workdir)
        text = page(runs)
        files.replace(args.out, text)
        health = {run.name: findings(run) for run in runs}
        if args.json:
            told = {k: [f._asdict() for f in found] for k, found in health.items()}
            files.replace_json(args.json, told)
    except (OSError, ValueError) as error:
        sys.exit(f"error: {error}")
    for name, found in health.items():
        for finding in found:
            steps = f"step {finding.steps}: " if finding.steps else ""
            print(f"{name}: {finding.kind}: {steps}{finding.text}")
    print(f"{args.out}: {len(text.encode()) / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
