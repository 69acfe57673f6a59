"""Writes a report of training runs as one HTML page.

    python -m tools.report WORKDIR                      # writes WORKDIR/report.html
    python -m tools.report WORKDIR_A WORKDIR_B ... --out compared.html

Several workdirs are compared. Runs may be unfinished. The page needs no scripts and no
network. The command does not import or execute anything that a workdir names.
"""

import argparse
import sys
from collections.abc import Sequence

from configs.reading import output_file, user_path
from rl import files
from tools import command
from tools.report.health import findings
from tools.report.reading import read_runs
from tools.report.sections import page


def main(argv: Sequence[str] | None = None) -> int:
    parser = command.make_parser(__doc__)
    add = parser.add_argument
    add("workdir", type=user_path, nargs="+", metavar="WORKDIR")
    text = "file of the page (default: report.html in the first workdir)"
    add("--out", type=output_file, help=text)
    return command.run(_report, parser.parse_args(argv))


def _report(args: argparse.Namespace) -> dict[str, list]:
    """Writes the page and prints the findings; returns the findings by run."""
    out = args.out or args.workdir[0] / "report.html"
    runs = read_runs(args.workdir)
    text = page(runs)
    files.replace(out, text)
    health = {run.name: findings(run) for run in runs}
    for name, found in health.items():
        for finding in found:
            steps = f"step {finding.steps}: " if finding.steps else ""
            print(f"{name}: {finding.kind}: {steps}{finding.text}")
        if not found:
            print(f"{name}: no findings")
    print(f"{out}: {len(text.encode()) / 1e6:.1f} MB")
    return {name: [f._asdict() for f in found] for name, found in health.items()}


if __name__ == "__main__":
    sys.exit(main())
