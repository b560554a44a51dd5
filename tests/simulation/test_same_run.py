"""The same seed gives the same run, byte for byte, in any process."""

import os
import subprocess
import sys

SEEDS = "11..12"


def digests(hash_seed: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-m", "simulation", "--seeds", SEEDS, "--digest", "--processes", "1"],
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    return [line for line in done.stdout.splitlines() if line[:1].isdigit()]


def test_the_same_seed_gives_the_same_run() -> None:
    found = digests("1")
    assert len(found) == 2
    assert found == digests("4711")
