"""What a power cut at this moment would leave: the state that a server would recover from it."""

from taskyard.engine.model.state import EngineSettings, State
from taskyard.journal.identity import JournalSettings
from taskyard.journal.memory import MemoryDisk
from taskyard.journal.opening import open_journal


def on_disk(disk: MemoryDisk) -> State:
    """Recovered from a copy of all that was synced; `disk` itself is not touched."""
    state = State(EngineSettings())
    settings = JournalSettings(segment_size=65_536, payload_memory=0)
    open_journal(synced_copy(disk), settings, state, 0)
    return state


def synced_copy(disk: MemoryDisk) -> MemoryDisk:
    copy = MemoryDisk()
    for path, node in disk._world.stable.items():
        copy.put(path, bytes(node.stable))
    return copy
