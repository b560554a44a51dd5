"""scripts/vendor: what it brings is what it names, or it brings nothing. The registry is ours."""

from __future__ import annotations

import base64
import functools
import hashlib
import http.server
import importlib.machinery
import importlib.util
import io
import os
import shutil
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from taskyard.protocols.http.dashboard import VENDORED

ROOT = Path(__file__).resolve().parent.parent.parent
SCRIPT = ROOT / "scripts" / "vendor"
NOWHERE = "http://127.0.0.1:1"


@pytest.fixture(scope="module")
def vendor() -> Any:
    loader = importlib.machinery.SourceFileLoader("vendor_script", str(SCRIPT))
    spec = importlib.util.spec_from_loader("vendor_script", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["vendor_script"] = module  # dataclasses look it up
    sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
    loader.exec_module(module)
    sys.dont_write_bytecode = before
    return module


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The directory that it serves."""
    files = tmp_path / "registry"
    files.mkdir()
    handler = functools.partial(_Quiet, directory=str(files))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setenv("TASKYARD_NPM_REGISTRY", f"http://127.0.0.1:{server.server_port}/")
        yield files
        server.shutdown()
        thread.join()


def publish(registry: Path, name: str, files: dict[str, bytes]) -> str:
    """Gives the digest of the archive."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for path, content in files.items():
            member = tarfile.TarInfo(f"package/{path}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    target = registry / name / "-"
    target.mkdir(parents=True, exist_ok=True)
    (target / f"{name}-1.0.0.tgz").write_bytes(packed.getvalue())
    return base64.b64encode(hashlib.sha512(packed.getvalue()).digest()).decode()


def library(vendor: Any, name: str, digest: str, *files: Any) -> Any:
    return vendor.Library(name, "1.0.0", digest, files)


@pytest.fixture
def wanted(vendor: Any, registry: Path) -> tuple[Any, ...]:
    content = {"dist/a.js": b'import x from"b";', "LICENSE": b"MIT", "more.js": b"not wanted"}
    digest = publish(registry, "alpha", content)
    return (
        library(
            vendor,
            "alpha",
            digest,
            vendor.File("dist/a.js", "a.js", (('from"b"', 'from"./b.js"'),), "export {};"),
            vendor.File("LICENSE", "LICENSE"),
        ),
    )


def contents(directory: Path) -> dict[str, bytes]:
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name != "VENDORED.txt"
    }


def test_the_wanted_files_come_with_their_licence_and_nothing_else(
    vendor: Any, wanted: tuple[Any, ...], tmp_path: Path
) -> None:
    target = tmp_path / "vendor"
    assert not vendor.is_there(wanted, target)
    vendor.bring(wanted, target)
    assert contents(target) == {
        "alpha/LICENSE": b"MIT",
        "alpha/a.js": b'import x from"./b.js";export {};',
    }
    assert vendor.is_there(wanted, target)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("vendor")] == [
        "vendor"
    ]


def test_what_is_there_is_noticed_to_be_something_else(
    vendor: Any, wanted: tuple[Any, ...], tmp_path: Path
) -> None:
    target = tmp_path / "vendor"
    vendor.bring(wanted, target)
    alpha = wanted[0]
    others = [
        (library(vendor, "alpha", "other", *alpha.files),),
        (library(vendor, "alpha", alpha.sha512, *alpha.files[:1]),),
        (*wanted, library(vendor, "beta", "x")),
    ]
    assert [vendor.is_there(other, target) for other in others] == [False] * 3
    (target / "alpha" / "a.js").unlink()
    assert not vendor.is_there(wanted, target)


@pytest.mark.parametrize("fault", ["digest", "missing", "edit", "file"])
def test_what_is_not_as_it_was_leaves_all_as_it_was(
    vendor: Any, registry: Path, wanted: tuple[Any, ...], tmp_path: Path, fault: str
) -> None:
    target = tmp_path / "vendor"
    vendor.bring(wanted, target)
    before = contents(target)
    digest = publish(registry, "beta", {"b.js": b"b b"})
    beta = {
        "digest": library(vendor, "beta", wanted[0].sha512, vendor.File("b.js", "b.js")),
        "missing": library(vendor, "gamma", digest, vendor.File("b.js", "b.js")),
        "edit": library(vendor, "beta", digest, vendor.File("b.js", "b.js", (("b", "c"),))),
        "file": library(vendor, "beta", digest, vendor.File("c.js", "c.js")),
    }[fault]
    with pytest.raises(vendor.VendorError) as refused:
        vendor.bring((*wanted, beta), target)
    said = {"digest": "its digest is sha512-", "missing": "404", "edit": "exactly once"}
    assert said.get(fault, "c.js") in str(refused.value)
    assert contents(target) == before
    assert [path for path in tmp_path.iterdir() if ".new" in path.name] == []


@pytest.mark.parametrize("named", ["ftp://example.org", "file:///etc", "registry"])
def test_a_registry_is_asked_by_http(
    vendor: Any, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    monkeypatch.setenv("TASKYARD_NPM_REGISTRY", named)
    with pytest.raises(vendor.VendorError, match="must begin with"):
        vendor.registry()


def test_the_table_has_what_the_page_loads_with_its_licences(vendor: Any) -> None:
    names = {f"vendor/{each.name}/{file.target}" for each in vendor.PAGE for file in each.files}
    assert set(VENDORED) <= names
    for each in (*vendor.PAGE, *vendor.DEV):
        assert "LICENSE" in [file.target for file in each.files]
        assert len(base64.b64decode(each.sha512)) == 64
    assert vendor.REGISTRY == "https://registry.npmjs.org"


# As a command, in a checkout of its own


def run(checkout: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(checkout / "scripts" / "vendor"), *arguments],
        env={**os.environ, "TASKYARD_NPM_REGISTRY": NOWHERE},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "scripts").mkdir()
    shutil.copy(SCRIPT, tmp_path / "scripts")
    (tmp_path / "src" / "taskyard" / "dashboard" / "static").mkdir(parents=True)
    return tmp_path


def test_without_a_registry_it_says_so_and_leaves_nothing(checkout: Path) -> None:
    done = run(checkout)
    assert done.returncode == 1
    assert f"{NOWHERE}/preact/-/preact-" in done.stderr
    assert "Traceback" not in done.stderr
    assert list((checkout / "src" / "taskyard" / "dashboard" / "static").iterdir()) == []


def test_it_asks_nobody_for_what_is_there(vendor: Any, checkout: Path) -> None:
    target = checkout / "src" / "taskyard" / "dashboard" / "static" / "vendor"
    for each in vendor.PAGE:
        (target / each.name).mkdir(parents=True)
        for file in each.files:
            (target / each.name / file.target).write_bytes(b"x")
    (target / "VENDORED.txt").write_text(vendor.described(vendor.PAGE))
    assert (run(checkout).returncode, run(checkout, "dev").returncode) == (0, 1)


@pytest.mark.parametrize("arguments", [["other"], ["page", "dev"]])
def test_other_words_are_refused(checkout: Path, arguments: list[str]) -> None:
    assert run(checkout, *arguments).returncode == 2
