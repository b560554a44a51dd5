"""`taskyard lake report`: one page about what the queues did.

Everything is in one file that asks no other host for anything.
"""

import os
import tempfile
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from taskyard.pipeline.lake.snapshot import Lake
from taskyard.pipeline.report import text
from taskyard.pipeline.report.data import QUESTIONS, ReportData, gather_report_data
from taskyard.pipeline.report.figures import DAYS, make_figures, stacked
from taskyard.pipeline.report.scope import ReportOptions, Target
from taskyard.pipeline.report.views import Panel, make_panels
from taskyard.pipeline.views import VIEWS

__all__ = ["STEPS", "write_report"]

STEPS: Final = len(QUESTIONS) + len(VIEWS)  # how often `step` is called


def write_report(
    lake: Lake,
    to: Path,
    *,
    queues: Iterable[str] = (),
    since: datetime | None = None,
    until: datetime | None = None,
    targets: Iterable[tuple[str, float]] = (),
    step: Callable[[], object] = lambda: None,
) -> None:
    """Write the page, which only its owner can read; it is there whole, or as it was.

    `queues` are names or patterns, none: all. `targets` are pairs of such a name and of how many
    seconds its jobs may wait. `step` is called STEPS times.
    """
    options = ReportOptions(tuple(queues), since, until, tuple(Target(*each) for each in targets))
    found = gather_report_data(lake, options, step)
    panels = make_panels(lake, options, found.scope, step)
    page = _make_page(found, panels, datetime.now(UTC))
    handle, half = tempfile.mkstemp(prefix=f".{to.name}.", dir=to.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(page)
        os.replace(half, to)
    except BaseException:
        os.unlink(half)
        raise


def _make_page(found: ReportData, panels: list[Panel], made_at: datetime) -> str:
    made = Environment(
        loader=PackageLoader(__name__, "page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    made.filters |= {
        "count": text.count,
        "duration": text.duration,
        "time": text.time,
        "name": text.name,
        "words": text.plain,
    }
    made.globals |= {"days": DAYS, "share": text.share, "span": text.span, "stacked": stacked}
    figures = {panel.id: panel.figure for panel in panels if panel.figure}
    return made.get_template("report.html").render(
        found=found,
        figures=make_figures(found) | figures,
        panels=panels,
        made_at=made_at,
        plotly=Markup(get_plotlyjs()),
        zip=zip,
    )
