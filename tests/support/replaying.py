"""Is what the journal says exactly what the running engine knows?"""

from support.simulated import SimulatedServer
from support.snapshot import Plain, snapshot

from taskyard.engine.model.state import State
from taskyard.journal.identity import JOURNAL, load_identity
from taskyard.journal.recovery import Recovery


def persistent(state: State) -> Plain:
    """What must survive a restart: all but the ring of finished jobs, which compaction shortens."""
    found = snapshot(state)
    for volatile in ("ring", "ring_bytes", "evicted"):
        del found[volatile]
    jobs = found["jobs"]
    assert isinstance(jobs, dict)
    found["jobs"] = {id: job for id, job in jobs.items() if job["state"] != "gone"}
    found["weight"] = state.compacted_size()
    return found


def replay(yard: SimulatedServer) -> Recovery:
    """Write and sync everything, and read it back as a start would."""
    yard.broker.flush_journal()
    while yard.engine.records.count and not yard.broker.failure:
        yard.broker.flush_journal()  # those who waited for the one before have gone on
    identity = load_identity(yard.disk)
    assert identity is not None
    state = State(yard.engine.state.settings)
    recovery = Recovery(yard.disk.directory(JOURNAL), identity, state)
    recovery.run()
    return recovery


def check_replay(yard: SimulatedServer) -> Recovery:
    """A start from what is on disk would know exactly what this server knows."""
    recovery = replay(yard)
    here, there = persistent(yard.engine.state), persistent(recovery.state)
    for name, value in here.items():
        assert there[name] == value, f"{name} differs"
    return recovery
