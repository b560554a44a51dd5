"""The page: everything in one file that asks no other host for anything."""

from datetime import datetime
from typing import Final

from plotly.offline import get_plotlyjs

from taskyard.pipeline.report import summary, text, top
from taskyard.pipeline.report import time as over_time
from taskyard.pipeline.report.assets import SCRIPT, STYLE
from taskyard.pipeline.report.data import Findings
from taskyard.pipeline.report.figure import Plot, Section, Table

# Nothing may be fetched, whatever the page were made to contain.
_POLICY: Final = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data: blob:; base-uri 'none'; form-action 'none'"
)
_TWO: Final = ("latency", "names")  # sections whose plots stand side by side where there is room


def sections(found: Findings) -> list[Section]:
    return [
        Section(
            "flow",
            "Throughput and depth",
            "What came, what went, and what was left waiting.",
            [over_time.throughput(found), over_time.depth(found)],
        ),
        Section(
            "latency",
            "Latency",
            "Of all attempts that ended, on a scale of powers of ten.",
            [
                over_time.latency(found, "wait"),
                over_time.latency(found, "run"),
                over_time.queue_latency(found, "wait"),
                over_time.queue_latency(found, "run"),
                over_time.latency_heat(found, "wait"),
                over_time.latency_heat(found, "run"),
            ],
        ),
        Section(
            "goals",
            "Wait targets",
            "How many starts came within the wait that was promised.",
            [top.targets(found)],
        ),
        Section(
            "names",
            "Task names",
            "Where the time goes, and what fails.",
            [top.slowest(found), top.failing(found)],
        ),
        Section(
            "failures",
            "Retries and dead letters",
            "A storm is a time with many more retries than usual, at least three for ten starts.",
            [over_time.storms(found), top.dead_letters(found), top.error_groups(found)],
        ),
        Section(
            "work",
            "Workers",
            "From attempts that have ended; those still running are not in it.",
            [top.busy(found), top.workers(found)],
        ),
        Section(
            "calendar",
            "Calendar",
            "When to expect work.",
            [over_time.week(found)],
        ),
    ]


def page(found: Findings, title: str, made_at: datetime) -> str:
    parts = sections(found)
    plots = [plot for part in parts for plot in part.plots]
    figures = [{"id": plot.id, **plot.figure} for plot in plots if plot.figure]
    links = [("queues", "Queues"), *((part.id, part.title) for part in parts)]
    return "".join(
        (
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n',
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n',
            '<meta name="color-scheme" content="light dark">\n',
            f"<title>{text.escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n",
            f"<header>\n<h1>{text.escape(title)}</h1>\n",
            f'<p class="muted">{text.escape(summary.about(found))}</p>\n',
            '<nav aria-label="Sections">',
            "".join(f'<a href="#{id}">{text.escape(name)}</a>' for id, name in links),
            "</nav>\n</header>\n<main>\n",
            _first(found),
            "".join(_section(part) for part in parts),
            f"</main>\n<footer>{text.escape(_end(found, made_at))}</footer>\n",
            f"<script>{get_plotlyjs()}</script>\n",
            f'<script type="application/json" id="plots">{text.embed(figures)}</script>\n',
            f"<script>{SCRIPT}</script>\n</body>\n</html>\n",
        )
    )


def _first(found: Findings) -> str:
    cards = "".join(
        f"<li{' class=bad' if card.bad else ''}><span>{text.escape(card.title)}</span>"
        f"<strong>{_name(card.value)}</strong><span>{text.escape(card.more)}</span></li>"
        for card in summary.cards(found)
    )
    said = summary.stands_out(found)
    if said:
        items = "".join(f"<li>{_name(each)}</li>" for each in said)
        out = f'<section class="out"><h2>What stands out</h2><ul>{items}</ul></section>'
    else:
        out = (
            '<section class="out fine"><p>Nothing stands out: no retry storm, no stop while jobs '
            "waited, no missed target.</p></section>"
        )
    table = _table(summary.queue_table(found), "Queues")
    return (
        f'<ul class="cards">{cards}</ul>\n{out}\n<h2 id="queues">Queues</h2>\n'
        f'<div class="grid"><figure>{table}</figure></div>\n'
    )


def _section(part: Section) -> str:
    plots = "".join(_plot(plot) for plot in part.plots)
    two = " two" if part.id in _TWO else ""
    return (
        f'<section aria-labelledby="{part.id}"><h2 id="{part.id}">{text.escape(part.title)}</h2>'
        f'<p class="muted">{text.escape(part.about)}</p><div class="grid{two}">{plots}</div>'
        "</section>\n"
    )


def _plot(plot: Plot) -> str:
    says = text.escape(plot.says)
    drawing = (
        f'<div class="plot" id="{plot.id}" role="img" '
        f'aria-label="{text.escape(plot.title)}. {says}"></div>'
        if plot.figure
        else ""
    )
    table = _table(plot.table, plot.title)
    if plot.figure and plot.table.rows:
        table = f"<details><summary>The numbers</summary>{table}</details>"
    return (
        f"<figure><figcaption><h3>{text.escape(plot.title)}</h3><p>{says}</p></figcaption>"
        f"{drawing}{table if plot.table.rows else ''}</figure>\n"
    )


def _table(table: Table, title: str) -> str:
    def kind(column: int) -> str:
        return ' class="n"' if column >= table.numbers else ""

    head = "".join(
        f'<th scope="col"{kind(column)}>{_name(name)}</th>'
        for column, name in enumerate(table.head)
    )
    rows = "".join(
        f'<tr><th scope="row">{_name(row[0])}</th>'
        + "".join(f"<td{kind(column)}>{_name(cell)}</td>" for column, cell in enumerate(row[1:], 1))
        + "</tr>"
        for row in table.rows
    )
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{text.escape(title)}: table">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _name(value: str) -> str:
    """Words of others, whose direction must not turn what stands beside them."""
    return f"<bdi>{text.escape(value)}</bdi>" if not value.isascii() else text.escape(value)


def _end(found: Findings, made_at: datetime) -> str:
    upto = f"; the lake goes up to {text.time(found.last_time)} UTC" if found.last_time else ""
    return (
        f"Made by Taskyard at {text.time(made_at)} UTC{upto}. All times are UTC. The last minute "
        "is counted as far as the lake goes; percentiles are of single attempts."
    )
