"""A server of Spark Connect that runs in the Java of a session, and a session of it."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession


class ConnectServer:
    def __init__(self, spark: SparkSession) -> None:
        from pyspark.sql.connect.session import SparkSession as ConnectSession

        jvm: Any = spark.sparkContext._jvm
        self._none = jvm.scala.Option.apply(None)
        conf = spark.sparkContext._jsc.sc().conf()
        conf.set("spark.connect.grpc.binding.address", "127.0.0.1")
        conf.set("spark.connect.grpc.binding.port", "0")
        package = jvm.org.apache.spark.sql.connect.service
        self._service = getattr(getattr(package, "SparkConnectService$"), "MODULE$")
        self._service.start(spark.sparkContext._jsc.sc())
        self.url = f"sc://127.0.0.1:{self._service.server().getPort()}"
        session: Any = ConnectSession.builder.remote(self.url).create()
        self.session: SparkSession = session  # has its methods
        self._id = session.session_id

    def close(self) -> None:
        self.session.stop()
        self._service.stop(self._none, self._none)

    def last_access_ms(self) -> int:
        """When the session has last asked for something."""
        sessions = self._service.sessionManager().listActiveSessions()
        infos = [sessions.apply(at) for at in range(sessions.size())]
        [time] = [info.lastAccessTimeMs() for info in infos if info.sessionId() == self._id]
        return int(time)
