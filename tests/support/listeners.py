"""The listeners of a server process: every one on a free port, and where each has come to be."""

import json
from pathlib import Path

DIALECTS = ("masenko", "workq", "resp", "http")


def any_ports(flags: list[str]) -> list[str]:
    """Flags that give a free port to each listener that these flags say nothing of."""
    options = [f"--{dialect}-port" for dialect in DIALECTS]
    return [part for option in options if option not in flags for part in (option, "0")]


def address_of(ports_file: Path, dialect: str) -> tuple[str, int]:
    listener = json.loads(ports_file.read_bytes())[dialect]
    return listener["host"], listener["port"]
