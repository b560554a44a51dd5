"""A real S3 server: SeaweedFS, from its package."""

from __future__ import annotations

import contextlib
import socket
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from support.child import Child
from support.waiting import wait_for

_PORTS: Final = (
    "master.port",
    "master.port.grpc",
    "volume.port",
    "volume.port.grpc",
    "filer.port",
    "filer.port.grpc",
    "s3.port",
    "s3.port.grpc",
)
# Those of S3 that listen at a port of their own otherwise, and what asks the network.
_OFF: Final = ("s3.port.iceberg=0", "s3.port.lance=0", "s3.iam=false", "master.telemetry=false")
_BUCKET: Final = "lakes"


@dataclass
class S3:
    endpoint: str

    @property
    def options(self) -> dict[str, str]:
        """Those of delta-rs."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "anyone",
            "AWS_SECRET_ACCESS_KEY": "hush-s3-secret",
            "aws_conditional_put": "etag",
        }

    def uri(self, name: str) -> str:
        return f"s3://{_BUCKET}/{name}"


@contextlib.contextmanager
def seaweed(directory: Path) -> Iterator[S3]:
    ports = dict(zip(_PORTS, _free_ports(len(_PORTS)), strict=True))
    flags = [f"-{name}={port}" for name, port in ports.items()] + [f"-{each}" for each in _OFF]
    weed = Path(sys.executable).with_name("weed")
    command = [str(weed), "server", f"-dir={directory}", "-ip=127.0.0.1", "-s3", "-filer", *flags]
    command.append(f"-filer.localSocket={directory}/filer.sock")
    with Child(directory, command) as child:
        endpoint = f"http://127.0.0.1:{ports['s3.port']}"

        def has_bucket() -> bool:
            assert child.is_running(), child.log()
            request = urllib.request.Request(f"{endpoint}/{_BUCKET}", method="PUT")
            try:
                urllib.request.urlopen(request).close()
            except urllib.error.HTTPError as error:
                return error.code == 409  # it was made by a request before
            except OSError:
                return False
            return True

        wait_for(has_bucket)
        yield S3(endpoint)


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        listening = [
            stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)
        ]
        return [int(each.getsockname()[1]) for each in listening]
