"""The last minute, which is not over for the lake, is in a report's tiles and plots alike."""

from pathlib import Path
from random import Random

from pyspark.sql import SparkSession
from spark.histories import MINUTE, PUSHERS, History
from spark.lake_runs import read_in

from taskyard.engine.job import Policy
from taskyard.pipeline.lake.snapshot import open_lake
from taskyard.pipeline.report.data import gather
from taskyard.pipeline.report.page import sections
from taskyard.pipeline.report.scope import Options
from taskyard.pipeline.report.time import depth_of_all, flow_of_all


def test_the_open_minute_is_plotted_as_far_as_it_goes(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    history = History(tmp_path / "data", Random(1))
    for count in (2, 3):  # in the minute before, and in the last one
        history.now += MINUTE
        for _ in range(count):
            history.push("mail", "send", Policy())
        job = history.lease("mail", PUSHERS[0], 7)
        assert job is not None
        history.ack(job, PUSHERS[0])
    history.close()
    read_in(tmp_path / "data", tmp_path / "lake")
    found = gather(spark, open_lake(tmp_path / "lake"), Options(), lambda: None)
    assert found.outcomes == {"succeeded": 2}
    assert found.all_queues["arrivals"] == 5
    assert [(flow.arrivals, flow.finishes) for flow in flow_of_all(found)] == [(2, 1), (3, 1)]
    assert depth_of_all(found) == [1, 3]
    assert found.is_open
    plots = {plot.id: plot for part in sections(found) for plot in part.plots}
    for name in ("throughput", "depth"):
        figure = plots[name].figure
        assert figure is not None
        assert "The last point is not over" in plots[name].says
        assert figure["layout"]["annotations"][0]["x"] == found.scope.starts()[-1]
