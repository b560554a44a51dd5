"""The steps of the Containerfile, carried out in a clean directory: there is no container engine.

Covered: what is copied into the build, the environment from the lock, the wheel that is built and
installed, what is left of the build in the image; the command, the probe and the signal to stop.
Not covered: the base image itself, packages of the system (`apt-get`), the user and the owners of
directories (`useradd`, `install -o`), ports and volumes, and the stage `lake`, which installs one
more lock. The workflow builds the whole image with an engine.
"""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.containerfile import Builder, read
from support.listeners import address_of, any_ports
from support.manifests import PACKAGING, ROOT
from support.sockets import POLL_INTERVAL

FILE = PACKAGING / "Containerfile"


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Builder]:
    """The stages that the default one is made of."""
    place = tmp_path_factory.mktemp("image")
    stages = {stage.name: stage for stage in read(FILE)}
    builder = Builder(ROOT, place, {"TASKYARD_COMPILE": "quick"})
    builder.build(stages["build"])
    builder.keep(stages["build"])
    builder.build(stages[""])
    yield builder
    shutil.rmtree(place)


def run(image: Builder, *command: str) -> subprocess.CompletedProcess[str]:
    program = str(image.root / "opt/taskyard/bin" / command[0])
    return subprocess.run(
        [program, *command[1:]],
        cwd=image.root,
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
    )


def test_only_packages_of_the_system_were_left_out(image: Builder) -> None:
    [command] = image.foreign
    assert command.startswith("apt-get")
    assert "gcc" in command


def test_nothing_but_the_environment_is_in_the_image(image: Builder) -> None:
    assert [path.name for path in image.root.iterdir()] == ["opt"]
    assert not (image.root / "src").exists()


def test_what_is_installed_works_and_is_compiled(image: Builder) -> None:
    done = run(image, "python", "-I", str(ROOT / "scripts" / "smoke.py"), "--form", "compiled")
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_compiled_it_is_gone(image: Builder) -> None:
    names = {
        line.partition("=")[0].lower()
        for line in run(image, "pip", "freeze", "--all").stdout.splitlines()
    }
    assert "uvloop" in names
    assert names.isdisjoint({"mypy", "setuptools", "wheel"})
    check = run(image, "pip", "check")
    assert check.returncode == 0, check.stdout


def test_its_command_its_probe_and_its_signal(image: Builder, tmp_path: Path) -> None:
    stages = {stage.name: stage for stage in read(FILE)}
    base = stages[stages[""].base]
    users = tmp_path / "users.toml"
    added = run(image, "taskyard", "user", "add", "ada", "--users", str(users), "--token")
    assert added.returncode == 0, added.stderr
    words = {
        "/var/lib/taskyard": str(tmp_path / "data"),
        "/etc/taskyard/users.toml": str(users),
        "0.0.0.0": "127.0.0.1",
    }
    ports_file = tmp_path / "ports.json"
    command = [words.get(word, word) for word in base.last("CMD")]
    command += ["--ports-file", str(ports_file), *any_ports([])]
    [entry] = base.last("ENTRYPOINT")
    with (tmp_path / "log").open("wb") as log:
        server = subprocess.Popen([str(image.root) + entry, *command], stdout=log, stderr=log)
    try:
        while not ports_file.exists():
            assert server.poll() is None, (tmp_path / "log").read_text()
            time.sleep(POLL_INTERVAL)
        port = address_of(ports_file, "http")[1]
        program, *probe = base.last("HEALTHCHECK")
        found = run(image, Path(program).name, *(it.replace("8080", str(port)) for it in probe))
        assert found.returncode == 0, found.stderr
        server.terminate()
        assert server.wait(60) == 0
    finally:
        server.kill()
        server.wait()
