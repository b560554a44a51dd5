"""`python -m support.lake_server HOW PYTHON -m taskyard ...`: the command behind HOW, where what
runs beside the server only acts as the lake, and has little time: see fake_lake.py."""

import sys

from taskyard.cli.main import main
from taskyard.server import lake
from taskyard.server.config import Settings
from taskyard.server.lake_process import Patience

how, _, _, _, *arguments = sys.argv[1:]
command = lake.command


def fake_command(settings: Settings) -> list[str]:
    python, _, _, *rest = command(settings)
    del rest[rest.index("--master") :]
    return [python, "-m", "support.fake_lake", how, *rest]


lake.command = fake_command
lake.PATIENCE = Patience(first_pause=0.02, longest_pause=0.1, stop=0.5, farewell=0.3)
sys.exit(main(arguments))
