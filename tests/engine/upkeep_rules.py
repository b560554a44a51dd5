"""The part of the state machine that looks after queues, batches, values and sessions."""

from engine.draws import (
    OWNERS,
    Settings,
    blobs,
    durations,
    make_settings,
    names,
    queue_settings,
)
from engine.harness import ORIGIN
from engine.side_by_side import SideBySide
from hypothesis import strategies as st
from hypothesis.stateful import rule
from support.batches import ack_all, drop_all, lease_all

from taskyard.engine.model.job import SECOND


class UpkeepRules(SideBySide):
    # Looking after queues

    @rule(
        name=names,
        drawn=queue_settings,
        state=st.integers(0, 5),
        what=st.sampled_from(("configure",) * 4 + ("purge", "create", "delete")),
    )
    def look_after_queue(self, name: str, drawn: Settings, state: int, what: str) -> None:
        if what == "configure":
            self.configure_queue(name, drawn)
        elif what == "purge":
            self.purge(name, state, 2)
        elif what == "create":
            self.create_queue(name, drawn)
        else:
            self.delete_queue(name, state == 5)

    def create_queue(self, name: str, drawn: Settings) -> None:
        both = make_settings(drawn), make_settings(drawn)
        self.do(
            lambda engine: engine.create_queue(name, both[0], ORIGIN, self.now),
            lambda model, _: model.create_queue(name, both[1]),
        )

    def configure_queue(self, name: str, drawn: Settings) -> None:
        both = make_settings(drawn), make_settings(drawn)
        self.do(
            lambda engine: engine.configure_queue(name.encode(), both[0], ORIGIN, self.now),
            lambda model, _: model.configure_queue(name.encode(), both[1], self.now),
        )

    def purge(self, name: str, state: int, count: int) -> None:
        self.do(
            lambda engine: engine.purge_queue(name.encode(), state, count, ORIGIN, self.now),
            lambda model, _: model.purge(name.encode(), state, count, self.now),
        )

    def delete_queue(self, name: str, emptied: bool) -> None:
        if emptied and name.encode() in self.model.queues:
            for state in range(6):
                self.purge(name, state, 1000)
        self.do(
            lambda engine: engine.delete_queue(name.encode(), ORIGIN, self.now),
            lambda model, _: model.delete_queue(name.encode()),
        )

    # Batches

    @rule(
        consumer=st.sampled_from(("c1", "c1", "c2")),
        what=st.sampled_from(("next", "next", "same", "ack", "drop")),
        limit=st.integers(1, 3),
        ttr=st.sampled_from((0, 5 * SECOND)),
    )
    def batch(self, consumer: str, what: str, limit: int, ttr: int) -> None:
        if what == "ack":
            self.ack_batch(consumer, 0)
        elif what == "drop":
            self.drop_consumer(consumer)
        else:
            self.lease_batch(consumer, what == "next", limit, ttr)

    def lease_batch(self, consumer: str, step: int, limit: int, ttr: int) -> None:
        known = self.model.consumers.get(consumer)
        number = (known.number if known is not None else 0) + step
        queues = [b"a", b"b", b"a", b"unknown"]
        self.do(
            lambda engine: lease_all(
                engine, consumer, number, queues, limit, ttr, ORIGIN, self.now
            ),
            lambda model, _: model.lease_batch(
                consumer, number, queues, limit, ttr, self.owner_of(consumer), ORIGIN, self.now
            ),
        )

    def owner_of(self, consumer: str) -> int:
        """The engine chooses it; nobody else may have it."""
        found = self.engine.state.consumers.get(consumer)
        if found is None:
            return 0
        others = [each.owner for each in self.engine.state.consumers.values() if each is not found]
        assert found.owner not in (*others, *OWNERS)
        return found.owner

    def ack_batch(self, consumer: str, step: int) -> None:
        known = self.model.consumers.get(consumer)
        number = (known.number if known is not None else 1) + step
        self.do(
            lambda engine: ack_all(engine, consumer, number, ORIGIN, self.now),
            lambda model, _: model.ack_batch(consumer, number, self.now),
        )

    def drop_consumer(self, consumer: str) -> None:
        self.do(
            lambda engine: drop_all(engine, consumer, ORIGIN, self.now),
            lambda model, _: model.drop_consumer(consumer, self.now),
        )

    # Values and sessions

    @rule(
        key=st.sampled_from((b"v1", b"v2")),
        what=st.sampled_from(("set", "set", "expire", "delete")),
        value=blobs,
        lasts=st.none() | durations,
    )
    def value(self, key: bytes, what: str, value: bytes, lasts: int | None) -> None:
        if what == "set":
            self.set_value(key, value, lasts)
        elif what == "expire":
            self.expire_value(key, lasts)
        else:
            self.do(
                lambda engine: engine.delete_value(key, ORIGIN, self.now),
                lambda model, _: model.delete_value(key),
            )

    def set_value(self, key: bytes, value: bytes, lasts: int | None) -> None:
        expires_at = 0 if lasts is None else self.now + lasts
        self.do(
            lambda engine: engine.set_value(key, value, expires_at, ORIGIN, self.now),
            lambda model, _: model.set_value(key, value, expires_at, self.now),
        )

    def expire_value(self, key: bytes, lasts: int | None) -> None:
        expires_at = 0 if lasts is None else self.now + lasts
        self.do(
            lambda engine: engine.set_value_expiry(key, expires_at, ORIGIN, self.now),
            lambda model, _: model.expire_value(key, expires_at, self.now),
        )

    @rule(
        id=st.sampled_from((1, 2)),
        event=st.sampled_from(("open", "attach", "detach", "close", "delivered")),
        back=st.integers(0, 3),
    )
    def session(self, id: int, event: str, back: int) -> None:
        if event == "delivered":
            self.letters_delivered(id, back)
            return
        self.do(
            lambda engine: getattr(engine, f"{event}_session")(id, ORIGIN, self.now),
            lambda model, _: getattr(model, f"{event}_session")(id, self.now),
        )

    def letters_delivered(self, id: int, back: int) -> None:
        known = self.model.sessions.get(id)
        upto = (known.numbered if known is not None else 0) - back
        self.do(
            lambda engine: engine.acknowledge_notices(id, upto, ORIGIN, self.now),
            lambda model, _: model.letters_delivered(id, upto),
        )
