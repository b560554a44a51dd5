"""The metrics' page, the Grafana dashboard and the alert rules, held against a real /metrics."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from support.lake_server import LakeServer
from support.process import ServerProcess
from support.wire import exchange

ROOT = Path(__file__).resolve().parent.parent
PACKAGING = ROOT / "packaging"
METRIC = re.compile(r"\b((?:taskyard|masenko|process)_[a-z_]+)(?:\{([^}]*)\})?")
GROUPED = re.compile(r"\bby \(([^)]*)\)")
# What Prometheus adds to every sample.
ADDED = {"job", "instance"}

Metrics = dict[str, set[str]]  # the samples of the page, and the labels of each


def scrape(server: ServerProcess) -> str:
    address = "{}:{}".format(*server.address("http"))
    with urlopen(f"http://{address}/metrics", timeout=60) as answer:
        return str(answer.read().decode())


def work(server: ServerProcess) -> None:
    """A job that is done, and a reader, so that there is something to tell of each."""
    peer = server.connect()
    exchange(peer, b'PUSH {"name":"a","queue":"q"}\n', b'OK {"id":1}\n')
    exchange(peer, b'FETCH {"queues":["q"]}\n', b'OK {"id":1,"queue":"q","name":"a"}\n')
    exchange(peer, b'ACK {"id":1}\n', b"OK {}\n")
    address = "{}:{}".format(*server.address("http"))
    body = b'{"next_seq": 1, "lease": 3600}'
    headers = {"Content-Type": "application/json"}
    request = Request(f"http://{address}/api/v1/readers/audit", body, headers, method="PUT")
    urlopen(request, timeout=60).close()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of a server with all that has metrics; its lake is only acted: see support/fake_lake.py."""
    with LakeServer(tmp_path_factory.mktemp("server"), "follow") as server:
        work(server)
        yield scrape(server)


@pytest.fixture(scope="module")
def metrics(page: str) -> Metrics:
    found: Metrics = {"up": set()}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def kinds(page: str) -> dict[str, str]:
    return dict(re.findall(r"^# TYPE (\S+) (\S+)$", page, re.MULTILINE))


def check(expression: str, metrics: Metrics) -> None:
    """Each metric is there, and has the labels that are asked for."""
    used = METRIC.findall(expression)
    assert used or "up{" in expression, expression
    for name, selector in used:
        assert name in metrics, name
        labels = set(re.findall(r"(\w+)\s*(?:=~|!=|!~|=)", selector))
        assert labels <= metrics[name] | ADDED, (name, labels)
    known = set().union(*(metrics[name] for name, _ in used)) | ADDED
    for group in GROUPED.findall(expression):
        assert {label.strip() for label in group.split(",")} <= known, expression


def test_every_metric_is_documented_and_every_documented_one_is_there(page: str) -> None:
    text = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert dict(re.findall(r"^\| `([a-z_]+)` \| (\w+) \|", text, re.MULTILINE)) == kinds(page)


def test_the_labels_of_a_metric_are_those_that_are_documented(page: str, metrics: Metrics) -> None:
    text = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([a-z_]+)` \| (\w+) \| ([\w, ]*) \|", text, re.MULTILINE)
    for name, kind, labels in rows:
        shown = metrics.get(f"{name}_sum" if kind == "histogram" else name)
        if shown is not None:  # a counter by reasons, say, shows nothing before the first
            assert shown == {label for label in labels.split(", ") if label.strip()}, name


def test_the_dashboard_asks_for_metrics_that_exist(metrics: Metrics) -> None:
    board = json.loads((PACKAGING / "grafana.json").read_text(encoding="utf-8"))
    asked = [target["expr"] for panel in board["panels"] for target in panel.get("targets", [])]
    asked += [note["expr"] for note in board["annotations"]["list"]]
    assert len(asked) > 40
    for expression in asked:
        check(expression, metrics)
    for variable in board["templating"]["list"][1:]:
        name, label = re.findall(
            r"label_values\((\w+)(?:\{.*\})?, (\w+)\)", variable["definition"]
        )[0]
        assert label in metrics[name] | ADDED


def test_the_panels_of_the_dashboard_do_not_overlap() -> None:
    board = json.loads((PACKAGING / "grafana.json").read_text(encoding="utf-8"))
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        place = panel["gridPos"]
        cells = {
            (place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24, panel["title"]
        taken |= cells
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


def test_the_alerts_ask_for_metrics_that_exist(metrics: Metrics) -> None:
    rules = alert_rules()
    assert len(rules) > 20
    for rule in rules:
        check(rule["expr"], metrics)
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert rule["annotations"]["summary"]


def test_the_alerts_are_explained() -> None:
    text = (ROOT / "docs" / "monitoring.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `(Taskyard\w+)` \|", text, re.MULTILINE) == [
        rule["alert"] for rule in alert_rules()
    ]


def alert_rules() -> list[dict[str, Any]]:
    loaded = yaml.safe_load((PACKAGING / "alerts.yml").read_text(encoding="utf-8"))
    return [rule for group in loaded["groups"] for rule in group["rules"]]
