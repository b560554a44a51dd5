"""Pages to crawl, over Pqueue: the more often one is asked for, the sooner its turn comes."""

from __future__ import annotations

import random

from redis import Redis

from demo.crew import Addresses, Shift, Tally, work_for


class Pages:
    def __init__(self, addresses: Addresses, shift: Shift, tally: Tally) -> None:
        self._address = addresses.resp
        self._shift = shift
        self._tally = tally

    def readers(self) -> None:
        with Redis(*self._address) as redis:
            for dice in self._shift.beats(30, seed=8):
                page = f"https://shop.example.com/item/{int(dice.paretovariate(1.1)) % 5000}"
                score = redis.execute_command("UPDATE", page, 1)
                if score == 1:  # it is a new one; else its score has grown
                    self._tally.add(pushed=1)
                if dice.random() < 0.1:  # a list is a queue as well: Workq's worker takes these
                    redis.rpush("crossing", f'{{"page": "{page}"}}')
                    self._tally.add(pushed=1)

    def crawler(self) -> None:
        dice = random.Random(9)
        with Redis(*self._address) as redis:
            while not self._shift.home.is_set():
                if redis.execute_command("NEXT") is None:
                    self._shift.home.wait(0.1)
                    continue
                self._tally.add(done=1)
                work_for(dice, 0.04)
