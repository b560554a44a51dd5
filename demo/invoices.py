"""Invoices, over toq: a producer and a consumer in Python, where some tasks raise."""

from __future__ import annotations

import random
import threading
from typing import Any

from demo.crew import Addresses, Shift, Tally, work_for
from taskyard.toq import Consumer, Countdown, Producer, Task


class Invoices:
    def __init__(self, addresses: Addresses, shift: Shift, tally: Tally) -> None:
        self._url = addresses.url
        self._shift = shift
        self._tally = tally
        self._dice = random.Random(10)
        self._lock = threading.Lock()

    def shop(self) -> None:
        with Producer(self._url) as producer:
            for dice in self._shift.beats(8, seed=11):
                prices = [dice.randrange(100, 20_000) for _ in range(dice.randrange(1, 6))]
                people = dice.choice([1, 1, 1, 2, 3, 0])  # nobody pays: that cannot be divided
                task = Task.of("invoice.split", prices, people, max_retries=1)
                producer.enqueue("invoices", task)
                self._tally.add(pushed=1)

    def clerk(self) -> None:
        countdown = Countdown(first=1, factor=2, most=4, jitter=0.1)
        consumer = Consumer(
            self._url, "invoices", concurrency=2, countdown=countdown, on_result=self._count
        )
        consumer.register("invoice.split")(self._split)
        threading.Thread(target=self._end, args=(consumer,)).start()
        consumer.run()

    def _end(self, consumer: Consumer) -> None:
        self._shift.home.wait()
        consumer.stop()

    def _split(self, task: Task) -> float:
        prices, people = task.arguments()
        with self._lock:
            dice = random.Random(self._dice.random())
        work_for(dice, 0.05)
        return float(sum(prices) / people)

    def _count(self, task: Task, result: Any) -> None:
        if result.succeeded:
            self._tally.add(done=1)
        else:
            self._tally.add(failed=1)
