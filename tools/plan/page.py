"""A plan as one HTML file that needs no network: memory, timeline, programs."""

import pathlib
from collections.abc import Mapping
from typing import Any

from tools.page import document, parts

_TEMPLATE = pathlib.Path(__file__).with_suffix(".html")


def page(plan: Mapping[str, Any]) -> str:
    """Renders a plan as `tools.plan.report.make_report` gives it."""
    return document("Plan", data=dict(plan), **parts(_TEMPLATE))
