"""A client of Glovebox in its own words, which sends and is answered in either form."""

from __future__ import annotations

from typing import cast

from support.simulated import GloveboxPeer, SimulatedServer

from taskyard.access.principal import ANONYMOUS, Principal
from taskyard.protocols.glovebox.types import (
    LEVEL_NAMES,
    STAGE_NAMES,
    UNSPECIFIED,
    Create,
    Fetch,
    Finish,
    Pop,
    Post,
)

ALL = STAGE_NAMES


class Client:
    def __init__(
        self,
        yard: SimulatedServer,
        *,
        binary: bool = False,
        sends_binary: bool = False,
        durable: bool = False,
        reconnect_as: int | None = None,
        principal: Principal = ANONYMOUS,
    ) -> None:
        self._sends_binary = sends_binary
        self.peer: GloveboxPeer = yard.connect_glovebox(binary, durable, reconnect_as, principal)
        hello = self.peer.next()
        assert hello["type"] == "hello"
        self.id = cast("int", hello["id"])
        self.expect_nothing = self.peer.expect_nothing
        self.next = self.peer.next
        self.close = self.peer.close

    # What it sends

    def create(self, queue: str, label: int = 0, retries: int | None = None) -> None:
        if self._sends_binary:
            self.peer.send_request(Create(queue, label, retries))
        else:
            self.peer.send_json(type="create", queue=queue, label=label, retries=retries)

    def post(
        self,
        queue: str,
        message: bytes = b"body",
        *,
        label: int = 0,
        priority: int = 0,
        notify: tuple[str, ...] = (),
    ) -> None:
        if self._sends_binary:
            stages = sum(1 << STAGE_NAMES.index(name) for name in set(notify))
            self.peer.send_request(Post(queue, message, priority, label, stages))
            return
        try:
            body: object = message.decode()
        except UnicodeDecodeError:
            body = list(message)
        self.peer.send_json(
            type="post", queue=queue, message=body, label=label, priority=priority, notify=notify
        )

    def pop(
        self, queue: str, timeout: float | None = None, label: int = 0, sync: str = "sync"
    ) -> None:
        if self._sends_binary:
            self.peer.send_request(Pop(queue, LEVEL_NAMES.index(sync), timeout, label))
        else:
            self.peer.send_json(type="pop", queue=queue, timeout=timeout, label=label, sync=sync)

    def fetch(
        self,
        queue: str,
        block_timeout: float | None = None,
        work_timeout: float = 60,
        sync: str = "ready",
        label: int = 0,
    ) -> None:
        if self._sends_binary:
            level = LEVEL_NAMES.index(sync)
            self.peer.send_request(Fetch(queue, block_timeout, work_timeout, level, label))
        else:
            self.peer.send_json(
                type="fetch",
                queue=queue,
                block_timeout=block_timeout,
                work_timeout=work_timeout,
                sync=sync,
                label=label,
            )

    def finish(
        self,
        queue: str,
        sequence: int,
        *,
        shard: int = 0,
        label: int | None = None,
        response: str | None = None,
    ) -> None:
        if self._sends_binary:
            level = UNSPECIFIED if response is None else LEVEL_NAMES.index(response)
            self.peer.send_request(Finish(queue, sequence, shard, label, level))
        else:
            self.peer.send_json(
                type="finish",
                queue=queue,
                sequence=sequence,
                shard=shard,
                label=label,
                response=response,
            )

    # What it expects

    def expect_notice(self, label: int, *stages: str) -> None:
        for stage in stages:
            self.peer.expect_json(type="notice", label=label, notice=stage)

    def expect_message(
        self, label: int, sequence: int, body: object = "body", *, finished: bool = False
    ) -> None:
        self.peer.expect_json(
            type="message", label=label, shard=0, sequence=sequence, body=body, finished=finished
        )

    def expect_none(self, label: int) -> None:
        self.peer.expect_json(type="nomessage", label=label)

    def expect_error(self, label: int, code: str, key: str) -> None:
        self.peer.expect_json(type="error", label=label, code=code, key=key)

    def taken(self) -> int:
        """The sequence of the message that has come."""
        message = self.peer.next()
        assert message["type"] == "message", message
        return cast("int", message["sequence"])

    def stages(self) -> list[tuple[object, object]]:
        """The notices that have come, and nothing else has."""
        found = []
        while self.peer.responses:
            notice = self.peer.next()
            assert notice["type"] == "notice", notice
            found.append((notice["label"], notice["notice"]))
        return found
