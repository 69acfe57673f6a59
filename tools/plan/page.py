"""A plan as one HTML file that needs no network: memory, timeline, programs."""

import json
import pathlib
from collections.abc import Mapping
from typing import Any

_TEMPLATE = pathlib.Path(__file__).with_suffix(".html")


def page(plan: Mapping[str, Any]) -> str:
    """Renders a plan as `tools.plan.report.make_report` gives it."""
    text = json.dumps(plan, ensure_ascii=False).replace("<", "\\u003c")
    return _TEMPLATE.read_text(encoding="utf-8").replace("__DATA__", text)
