"""A server beside which runs what only acts as the lake, and has little time: see fake_lake.py."""

import http.client
import json
import os
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

from support.process import ServerProcess

from taskyard.cli.main import main
from taskyard.server import lake_supervisor
from taskyard.server.lake_supervisor import RestartPolicy
from taskyard.server.settings.schema import Settings


class LakeServer(ServerProcess):
    """`how` the lake acts; `stop`: the seconds in which it must end; `token`: of who asks."""

    def __init__(
        self, directory: Path, how: str, *flags: str, stop: float = 0.5, token: str = ""
    ) -> None:
        self.lake = directory / "lake"
        self._token = token
        paths = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
        super().__init__(
            directory,
            *("--lake", str(self.lake), *flags),
            environment={"PYTHONPATH": os.pathsep.join(filter(None, paths))},
            wrapper=[sys.executable, "-m", "support.lake_server", how, str(stop)],
        )

    def ask(
        self, method: str, path: str, token: str | None = None, **headers: str
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        token = self._token if token is None else token
        if token:
            headers["Authorization"] = f"Bearer {token}"
        with closing(http.client.HTTPConnection(*self.address("http"))) as connection:
            connection.request(method, path, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()

    def get(self, path: str, token: str | None = None) -> tuple[int, Any]:
        status, _, body = self.ask("GET", path, token)
        return status, json.loads(body)

    def view(self) -> Any:
        return self.get("/api/v1/lake")[1]


def _serve(how: str, stop: str, *command: str) -> int:
    """Do what `PYTHON -m taskyard ...` does."""
    real_command = lake_supervisor.lake_process_command

    def fake_command(settings: Settings) -> list[str]:
        python, _, _, *rest = real_command(settings)
        del rest[rest.index("--master") :]
        return [python, "-m", "support.fake_lake", how, *rest]

    lake_supervisor.lake_process_command = fake_command
    lake_supervisor.RESTART_POLICY = RestartPolicy(
        first_pause=0.02, max_pause=0.1, stop_timeout=float(stop), group_exit_timeout=0.3
    )
    return main(command[3:])


if __name__ == "__main__":
    sys.exit(_serve(*sys.argv[1:]))
