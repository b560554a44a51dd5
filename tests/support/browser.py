"""A page in a real Chromium without a window, spoken to over its DevTools protocol."""

import base64
import itertools
import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.websocket_client import connect
from websockets.sync.client import ClientConnection

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
)
PATIENCE = 120.0  # a guard against a hang


class Page:
    """One tab. What it logged, threw and asked for is collected from the start on."""

    def __init__(self, link: ClientConnection) -> None:
        self._link = link
        self._numbers = itertools.count(1)
        self.errors: list[str] = []
        self.requests: list[str] = []

    def call(self, method: str, **params: object) -> dict[str, Any]:
        number = next(self._numbers)
        self._link.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            message = json.loads(self._link.recv(timeout=PATIENCE))
            if message.get("id") == number:
                assert "error" not in message, message
                result: dict[str, Any] = message["result"]
                return result
            self._note(message)

    def _note(self, event: dict[str, Any]) -> None:
        params = event.get("params", {})
        match event.get("method"):
            case "Runtime.exceptionThrown":
                self.errors.append(json.dumps(params["exceptionDetails"]))
            case "Runtime.consoleAPICalled" if params["type"] in ("error", "warning", "assert"):
                self.errors.append(json.dumps(params["args"]))
            case "Log.entryAdded":
                self.errors.append(json.dumps(params["entry"]))
            case "Network.requestWillBeSent":
                self.requests.append(params["request"]["url"])

    def open(self, file: Path) -> None:
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Page.navigate", url=file.resolve().as_uri())

    def evaluate(self, expression: str) -> Any:
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def wait_for(self, expression: str) -> Any:
        """Until it is true."""
        end = time.monotonic() + PATIENCE
        while not (value := self.evaluate(expression)):
            assert time.monotonic() < end, f"{expression} never came; {self.errors}"
            time.sleep(0.05)
        return value

    def size(self, width: int, height: int, phone: bool = False) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=phone,
        )
        self.call("Emulation.setTouchEmulationEnabled", enabled=phone)

    def theme(self, name: str) -> None:
        self.call(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": name}],
        )

    def picture(self, out: Path, whole: bool = True) -> None:
        found = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        out.write_bytes(base64.b64decode(found["data"]))


@contextmanager
def browser(folder: Path) -> Iterator[Page]:
    """`folder` is for the browser's own files."""
    program = shutil.which("chromium") or shutil.which("google-chrome")
    assert program, "the tests of pages need Chromium: run scripts/setup dev"
    profile = folder / "chromium"
    process = subprocess.Popen(
        [program, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        with connect(_address(process, profile), max_size=None) as link:
            yield Page(link)
    finally:
        process.terminate()
        process.wait()


def _address(process: subprocess.Popen[bytes], profile: Path) -> str:
    """The tab's own address, from the file in which the browser says where it listens."""
    from urllib.request import urlopen

    port = profile / "DevToolsActivePort"
    end = time.monotonic() + PATIENCE
    while not (port.exists() and port.read_text().count("\n")):
        assert process.poll() is None, "Chromium did not start"
        assert time.monotonic() < end, "Chromium does not listen"
        time.sleep(0.05)
    number = port.read_text().splitlines()[0]
    while True:
        with urlopen(f"http://127.0.0.1:{number}/json/list", timeout=PATIENCE) as answer:
            for target in json.load(answer):
                if target["type"] == "page":
                    return str(target["webSocketDebuggerUrl"])
        assert time.monotonic() < end, "Chromium opens no page"
        time.sleep(0.05)
