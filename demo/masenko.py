"""Orders of a shop, over Masenko: packing, shipping and a receipt, one after the other."""

from __future__ import annotations

import json
import random
import socket
from datetime import UTC, datetime, timedelta
from typing import Any

from demo.crew import Addresses, Shift, Tally, work_for


class Client:
    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = socket.create_connection(address)
        self._lines = self._socket.makefile("rw", encoding="utf-8", newline="\n")

    def call(self, verb: str, **arguments: object) -> dict[str, Any] | None:
        print(verb, json.dumps(arguments), file=self._lines, flush=True)
        return self.reply()

    def reply(self) -> dict[str, Any] | None:
        status, _, rest = self._lines.readline().partition(" ")
        if status == "ERR":
            raise RuntimeError(json.loads(rest)["msg"])
        if status not in ("OK", "EMPTY"):
            raise ConnectionError("the server has closed the connection")
        found: dict[str, Any] = json.loads(rest)
        return found if status == "OK" else None

    def atomic(self, *tasks: dict[str, Any]) -> None:
        print("ATOMIC", file=self._lines)
        for task in tasks:
            print("PUSH", json.dumps(task), file=self._lines)
        print("DONE", file=self._lines, flush=True)
        self.reply()

    def close(self) -> None:
        self._lines.close()
        self._socket.close()


class Orders:
    def __init__(self, addresses: Addresses, shift: Shift, tally: Tally) -> None:
        self._address = addresses.masenko
        self._shift = shift
        self._tally = tally

    def customers(self) -> None:
        """Each order is three tasks, of which the later ones wait for the earlier ones."""
        client = Client(self._address)
        for dice in self._shift.beats(9, seed=1):
            number = dice.randrange(10_000, 99_999)
            person = dice.choice(["ada", "bo", "cy", "dee", "eli", "fay"])
            payload = {"order": number, "customer": f"{person}@example.com"}
            client.atomic(
                {"name": "order.pack", "queue": "orders", "payload": payload, "retry": 3},
                {
                    "name": "order.ship",
                    "queue": "shipping",
                    "payload": {**payload, "weight": round(dice.uniform(0.1, 30), 1)},
                    "blocked_by": [-1],
                },
                {
                    "name": "mail.receipt",
                    "queue": "mail",
                    "payload": payload,
                    "blocked_by": [-1],
                },
            )
            self._tally.add(pushed=3)
            if dice.random() < 0.3:
                self._remind(client, payload, dice)
        client.close()

    def _remind(self, client: Client, payload: dict[str, Any], dice: random.Random) -> None:
        """A letter for later: it waits for its time."""
        due = datetime.now(UTC) + timedelta(seconds=dice.uniform(2, 25))
        client.call(
            "PUSH",
            name="mail.reminder",
            queue="mail",
            payload=payload,
            execute_at=due.isoformat(),
            deadqueue="mail-undeliverable",
            retry=0,
        )
        self._tally.add(pushed=1)

    def packer(self) -> None:
        self._work(("orders", "shipping"), seed=2, typical=0.03, failing=0.04)

    def postman(self) -> None:
        self._work(("mail", "chores"), seed=3, typical=0.04, failing=0.08)

    def _work(self, queues: tuple[str, ...], seed: int, typical: float, failing: float) -> None:
        client = Client(self._address)
        dice = random.Random(seed)
        while not self._shift.home.is_set():
            task = client.call("FETCH", queues=list(queues), timeout="500ms")
            if task is None:
                continue
            work_for(dice, typical)
            if dice.random() < failing:
                client.call("NACK", id=task["id"])
                self._tally.add(failed=1)
            else:
                client.call("ACK", id=task["id"])
                self._tally.add(done=1)
        client.close()
