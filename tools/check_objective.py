"""Checks a policy loss, alone and with each correction of off-policy tokens.

    python -m tools.check_objective NAME [--arg KEY=VALUE]...
        [--correction NAME]... [--json OUT]

NAME is a loss of rl/update/losses.py (grpo, gspo, ...) or module:function. The loss
runs as in training on a few completions, which are packed into rows in many ways. It
then runs with each correction, with a KL penalty and with an entropy bonus. The check
needs no model and uses eight virtual CPU devices. The command prints one line for each
property and exits with status 1 if a property does not hold.
"""

import argparse
import ast
import dataclasses
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import jax

from configs import base
from rl.processes.devices import start_cpu_devices
from rl.update.losses import LOSSES
from rl.update.objective import TRUNCATE, objective_from_config
from rl.update.rejection import REJECTIONS
from tools import command
from tools.objective.corrections import correction_findings
from tools.objective.properties import DEVICES, Finding, loss_findings
from tools.objective.trial import Trial


def main(argv: Sequence[str] | None = None) -> int:
    parser = command.make_parser(__doc__)
    add = parser.add_argument
    add("name", metavar="NAME", help=f"{', '.join(LOSSES)}, or module:function")
    text = "an argument of the loss, as in config.objective.function_args"
    add("--arg", action="append", default=[], metavar="KEY=VALUE", help=text)
    text = "a value of config.objective.correction (default: all built-in ones)"
    add("--correction", action="append", metavar="NAME", help=text)
    return command.run(
        _check,
        parser.parse_args(argv),
        failed=lambda result: not all(row["holds"] for row in result["findings"]),
    )


def _check(arguments: argparse.Namespace) -> dict[str, Any]:
    given = _parsed(arguments.arg)
    findings = check_loss(arguments.name, given, arguments.correction)
    for finding in findings:
        print(finding)
    broken = [finding.name for finding in findings if not finding.holds]
    outcome = f"broken: {', '.join(broken)}" if broken else "all properties hold"
    print(f"{arguments.name}: {outcome}")
    return {"name": arguments.name, "findings": [*map(dataclasses.asdict, findings)]}


def _parsed(pairs: Sequence[str]) -> dict[str, Any]:
    """Parses `KEY=VALUE` texts; a value that is not a Python literal stays a text."""
    arguments = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals:
            raise ValueError(f"--arg={pair}: must be KEY=VALUE")
        try:
            arguments[key] = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            arguments[key] = text
    return arguments


def check_loss(
    name: str, arguments: Mapping[str, Any], corrections: Sequence[str] | None = None
) -> list[Finding]:
    """Checks properties of a loss, alone and with each correction.

    If the loss, its gradient or a metric is not finite, checks nothing else. Sets up
    virtual CPU devices, so call this function before JAX initializes its devices.

    Args:
      name: the loss, as in `config.objective.function`.
      arguments: its arguments, as in `config.objective.function_args`.
      corrections: values of `config.objective.correction`; None means all built-in
        ones.

    Raises:
      ValueError: an argument is not valid.
    """
    start_cpu_devices(DEVICES, rows=DEVICES)
    c = base.RunConfig()
    chosen = dataclasses.replace(c.objective, function=name, function_args=arguments)
    c = dataclasses.replace(c, objective=chosen)
    with jax.enable_x64(True):
        findings = list(loss_findings(Trial(objective_from_config(c))))
        if findings[0].holds:
            every = (TRUNCATE, *REJECTIONS) if corrections is None else corrections
            findings += correction_findings(c, every)
    return findings


if __name__ == "__main__":
    sys.exit(main())
