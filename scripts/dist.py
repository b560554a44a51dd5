"""Builds what is released into dist/: the source archive, and a wheel made from it, tried out.

Run by `make dist`. pip makes the wheel from the archive alone, in an environment of its own: so the
archive has all that a build takes, and the list of build requirements is complete. It must be the
compiled form. Then scripts/smoke.py tries it out in an empty environment. Wheels for other machines
and other versions of Python come from cibuildwheel, in .github/workflows/ci.yml.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "dist"


def run(*arguments: str, **environment: str) -> None:
    command = [sys.executable, *arguments]
    print("dist:", " ".join(["python", *arguments]), file=sys.stderr, flush=True)
    subprocess.run(command, cwd=ROOT, env={**os.environ, **environment}, check=True)


def only(pattern: str) -> str:
    [found] = TARGET.glob(pattern)
    return str(found)


def main() -> int:
    shutil.rmtree(TARGET, ignore_errors=True)
    try:
        # Without the extensions: what they are generated from is in the archive already.
        run("-m", "build", "--sdist", "--outdir", str(TARGET), ".", TASKYARD_COMPILE="0")
        pip = ("-m", "pip", "--disable-pip-version-check")
        # Its cache would give an earlier wheel back: it knows an archive by its path.
        wheel = ("wheel", "--no-cache-dir", "--no-deps", "--wheel-dir", str(TARGET))
        run(*pip, *wheel, only("*.tar.gz"), TASKYARD_COMPILE="1")
        run("scripts/smoke.py", only("*.whl"), "--form", "compiled")
    except subprocess.CalledProcessError as error:
        print(f"dist: {error}", file=sys.stderr)
        return 1
    for path in sorted(TARGET.iterdir()):
        print(f"dist: {path.relative_to(ROOT)}, {path.stat().st_size:,} bytes", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
