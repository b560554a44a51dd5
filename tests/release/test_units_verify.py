"""The units, as systemd reads them."""

import shutil
import subprocess
from pathlib import Path

import pytest
from support.manifests import PACKAGING

UNITS = sorted([*PACKAGING.glob("*.service"), *PACKAGING.glob("*.socket")])


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_systemd_has_nothing_to_say_about_a_unit(unit: Path, tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze")
    assert program, "systemd-analyze is needed (Debian: apt-get install systemd)"
    for each in UNITS:  # a socket wants its service beside it
        content = each.read_text().replace("/opt/taskyard/bin/taskyard", "/bin/true")
        (tmp_path / each.name).write_text(content)
    name = unit.name.replace("@.", "@mail.")
    if name != unit.name:
        (tmp_path / name).symlink_to(tmp_path / unit.name)
    done = subprocess.run(
        [program, "verify", "--man=no", str(tmp_path / name)],
        env={"SYSTEMD_UNIT_PATH": f"{tmp_path}:", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
