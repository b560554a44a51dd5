"""The sessions of the documents: which blocks of a page are to be run, and how.

Each `sh`, `python` and `js` block is run, from top to bottom. A `text` block right behind one is
what it prints; `...` in it stands for anything within a line. Of a `console` block each line that
begins with `$` is a command; what stands below it is an example of what it may print. Other blocks
are only shown.
"""

import contextlib
import io
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

from support.sockets import HANG_GUARD

ROOT = Path(__file__).resolve().parent.parent.parent
FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
DOCUMENTED_PORTS = {"12345": "masenko", "9922": "workq", "8002": "resp", "8080": "http"}
_DOCUMENTED_PORT = re.compile(r"\b(?:" + "|".join(DOCUMENTED_PORTS) + r")\b")

# Stands in for nc where there is none: sends what it is given, prints until the other side closes.
NC = f"""#!{sys.executable}
import shutil, socket, sys
host, port = sys.argv[-2:]
with socket.create_connection((host, int(port)), timeout={HANG_GUARD}) as peer:
    peer.sendall(sys.stdin.buffer.read())
    if "-N" in sys.argv:
        peer.shutdown(socket.SHUT_WR)
    shutil.copyfileobj(peer.makefile("rb"), sys.stdout.buffer)
"""

# The same for curl, as far as the pages use it.
CURL = f"""#!{sys.executable}
import getopt, os, ssl, sys, threading, urllib.error, urllib.request
pairs, [url] = getopt.gnu_getopt(sys.argv[1:], "sNH:d:T:X:o:w:m:", ["cacert="])
given = dict(pairs)
trust = ssl.create_default_context(cafile=given["--cacert"]) if "--cacert" in given else None
body = given["-d"].encode() if "-d" in given else None
if "-T" in given:
    body = open(given["-T"], "rb").read()
request = urllib.request.Request(url, body, method=given.get("-X"))
for name, value in [value.split(": ", 1) for flag, value in pairs if flag == "-H"]:
    request.add_header(name, value)
try:
    answer = urllib.request.urlopen(request, timeout={HANG_GUARD}, context=trust)
except urllib.error.HTTPError as error:
    answer = error
if "-m" in given:
    end = threading.Timer(float(given["-m"]), os._exit, [28])
    end.daemon = True
    end.start()
while data := answer.read1(65536):
    if "-o" not in given:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
told = given.get("-w", "").replace("%{{http_code}}", str(answer.status))
sys.stdout.buffer.write(told.encode().decode("unicode_escape").encode())
"""
TASKYARD = f'#!/bin/sh\nexec "{sys.executable}" -m taskyard "$@"\n'
STAND_INS = {"nc": NC, "curl": CURL, "taskyard": TASKYARD}

RUN = ("sh", "python", "js", "console")
# What needs a cluster or an account elsewhere is `bash` and `py`.
SHOWN = ("text", "json", "toml", "yaml", "ini", "bash", "py")

Session = tuple[int, str, str, str | None]  # line, language, code, what it prints


def sessions(page: Path, languages: Collection[str] = RUN) -> list[Session]:
    """The blocks of a page that are to be run."""
    text = page.read_text(encoding="utf-8")
    blocks = list(FENCED.finditer(text))
    found: list[Session] = []
    for index, block in enumerate(blocks):
        if block[1] not in languages:
            continue
        expected = None
        following = blocks[index + 1] if index + 1 < len(blocks) else None
        if following is not None and following[1] == "text":
            between = text[block.end() : following.start()]
            expected = following[2] if not between.strip() else None
        line = text.count("\n", 0, block.start()) + 2
        found.append((line, block[1], block[2], expected))
    return found


def commands(console: str) -> list[str]:
    """What is typed in, a command at a time; one that ends a line with `\\` goes on in the next."""
    found = re.findall(r"^\$ ((?:.*\\\n)*.*)$", console, re.MULTILINE)
    return [re.sub(r"\s+# .*$", "", command.replace("\\\n", "")) for command in found]


def with_ports(code: str, ports: dict[str, int]) -> str:
    """The same with the ports on which a server listens, by the names of its listeners."""
    return _DOCUMENTED_PORT.sub(lambda port: str(ports[DOCUMENTED_PORTS[port[0]]]), code)


def run_shell(
    code: str, directory: Path, url: str, limit: float = HANG_GUARD, typed: str | None = None
) -> str:
    search = [str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]
    for name, text in STAND_INS.items():
        if shutil.which(name) is None:
            stand_in = directory / "bin" / name
            stand_in.parent.mkdir(exist_ok=True)
            stand_in.write_text(text)
            stand_in.chmod(0o755)
            search.insert(0, str(stand_in.parent))
    done = subprocess.run(
        ["/bin/sh", "-eu", "-c", code],
        cwd=directory,
        env={**os.environ, "PATH": os.pathsep.join(search), "TASKYARD_URL": url},
        input=typed,
        capture_output=True,
        text=True,
        timeout=limit,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def run_python(code: str, where: str, namespace: dict[str, Any]) -> str:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, where, "exec"), namespace)
    return printed.getvalue()


def matches(expected: str, printed: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, expected.split("..."))), printed) is not None
