"""What must hold in the engine at all times, whatever was done to it."""

from collections import Counter
from collections.abc import Iterator

from support.graves import remembered_uids, uid_pairs
from support.snapshot import LANES as CARRIED_LANES
from support.snapshot import deadlines, lane_jobs, waits_for

from taskyard.engine.limits import key_limit_record_bytes
from taskyard.engine.model.job import (
    BLOCKED,
    DELAYED,
    FAILED,
    FOREVER,
    GONE,
    LEASED,
    LIMITED,
    READY,
    SUCCEEDED,
    Job,
)
from taskyard.engine.model.queue import Queue
from taskyard.engine.model.state import (
    PRODUCER_BYTES,
    State,
    consumer_record_bytes,
    queue_record_bytes,
    reader_record_bytes,
    schedule_record_bytes,
    session_record_bytes,
    value_record_bytes,
)
from taskyard.engine.operations.facade import Engine
from taskyard.engine.structures.index import REGION_BYTES
from taskyard.engine.structures.ordered import CHUNK_JOBS, OrderedJobs, PriorityQueue
from taskyard.engine.structures.timers import Timer, Timers
from taskyard.engine.transitions import RING_ENTRY_BYTES, dead_letter_bytes, jobs_bound_to

LANES = (*CARRIED_LANES, LIMITED)
QUEUED = (READY, LIMITED, DELAYED, BLOCKED)


def check_invariants(engine: Engine) -> None:
    state = engine.state
    for queue in state.queues.values():
        check_queue(queue)
    _check_jobs(state)
    _check_identities(state)
    _check_held(state)
    assert state.leased_count == sum(queue.leased.size for queue in state.queues.values())
    _check_dependencies(state)
    _check_ring(state)
    check_weights(state)
    check_heap(state.timers)
    check_heap(state.key_timers)
    _check_timers(engine)
    _check_waiting(engine)


def check_lane(lane: OrderedJobs) -> None:
    """Chunks are neither empty nor too long, and in order throughout; or there is one job only."""
    jobs = [*reversed(lane.front), *(job for chunk in lane.chunks for job in chunk)]
    if lane.single is not None:
        assert not jobs
        jobs = [lane.single]
    places = [(job.order_key, job.id) for job in jobs]
    assert len(lane.front) <= CHUNK_JOBS
    assert all(0 < len(chunk) <= CHUNK_JOBS for chunk in lane.chunks)
    assert places == sorted(set(places))
    assert lane.size == len(jobs)


def check_ready(ready: PriorityQueue) -> None:
    """A lane for each priority that has jobs, and nothing left behind by others."""
    for lane in ready.by_priority.values():
        check_lane(lane)
    assert {priority: lane.priority for priority, lane in ready.by_priority.items()} == {
        priority: priority for priority in ready.by_priority
    }
    assert ready.size == sum(lane.size for lane in ready.by_priority.values())
    assert ready.highest is ready.by_priority[max(ready.by_priority)]
    if len(ready.by_priority) == 1:
        assert ready.sorted_priorities is None
    else:
        assert ready.sorted_priorities is not None
        assert [~inverted for inverted in ready.sorted_priorities] == sorted(
            ready.by_priority, reverse=True
        )
        assert all(lane.size for lane in ready.by_priority.values())


def check_queue(queue: Queue) -> None:
    check_ready(queue.ready)
    check_ready(queue.limited)
    check_gates(queue)
    for state in LANES:
        if queue.priority_queue(state) is None:
            check_lane(queue.ordered_jobs(state))
        for job in lane_jobs(queue, state):
            assert job.state == state
            assert job.queue is queue
        assert queue.job_count(state) == len(lane_jobs(queue, state))
    assert queue.dead_bytes == sum(dead_letter_bytes(job) for job in lane_jobs(queue, FAILED))
    waiting = [
        job
        for state in (BLOCKED, DELAYED, READY, LIMITED, LEASED)
        for job in lane_jobs(queue, state)
    ]
    assert queue.unfinished_count() == len(waiting)
    assert queue.unfinished_bytes == sum(job.payload_size for job in waiting)
    assert queue.is_empty() == (not any(lane_jobs(queue, state) for state in LANES))


def check_gates(queue: Queue) -> None:
    """What is out of each key and who waits for it; none is kept that says nothing."""
    running = Counter(_limit_keys(lane_jobs(queue, LEASED)))
    waiting = Counter(_limit_keys(lane_jobs(queue, LIMITED)))
    gates = queue.key_limits or {}
    assert queue.key_limits is None or gates
    assert {key: gate.leased_count for key, gate in gates.items() if gate.leased_count} == running
    assert {
        key: gate.waiting.size for key, gate in gates.items() if gate.waiting is not None
    } == waiting
    for key, gate in gates.items():
        assert (gate.key, gate.queue) == (key, queue)
        assert gate.leased_count or gate.waiting is not None or gate.theoretical_arrival_ns
        assert not gate.theoretical_arrival_ns or gate.timer is not None
        if gate.waiting is not None:
            check_ready(gate.waiting)


def _limit_keys(jobs: list[Job]) -> Iterator[bytes]:
    for job in jobs:
        if job.extras is not None and job.extras.limit_key is not None:
            yield job.extras.limit_key


def _check_jobs(state: State) -> None:
    """Each live job is in exactly one lane; what only some states have, only they have."""
    in_lanes = [
        job.id
        for queue in state.queues.values()
        for lane in LANES
        for job in lane_jobs(queue, lane)
    ]
    assert sorted(in_lanes) == sorted(job.id for job in state.jobs if job.state != GONE)
    assert state.jobs.size == len(list(state.jobs))
    for job in state.jobs:
        assert state.jobs.get(job.id) is job
        assert job.id < state.next_id
        assert (job.lease is not None) == (job.state == LEASED)
        assert bool(job.extras is not None and job.extras.blockers) == (job.state == BLOCKED)
        assert (job.finished_at != 0) == (job.state in (SUCCEEDED, FAILED, GONE))
        if job.state == DELAYED:
            assert job.order_key > job.pushed_at


def _check_identities(state: State) -> None:
    live = [job for job in state.jobs if job.state != GONE]
    assert {uid: job.id for uid, job in state.uids.items()} == {
        job.extras.uid: job.id
        for job in live
        if job.extras is not None and job.extras.uid is not None
    }
    assert all(
        len(job.extras.producer) == PRODUCER_BYTES
        for job in live
        if job.extras is not None and job.extras.uid is not None
    )
    _check_graves(state)
    for queue in state.queues.values():
        mine = [job for job in live if job.queue is queue and job.state in QUEUED]
        assert (queue.keys or {}) == {
            job.extras.key: job
            for job in mine
            if job.extras is not None and job.extras.key is not None
        }
        assert queue.keys is None or queue.keys


def _check_graves(state: State) -> None:
    """Each uid of a job that is gone is in the one grave of its time, and none is in use again."""
    tombstones = state.tombstones
    buried: dict[bytes, int] = {}
    for since, grave in tombstones.buckets.items():
        assert since == grave.since
        assert since % tombstones.bucket_width_us == 0
        assert grave.uids
        assert len(set(grave.uids)) == len(grave.uids)
        buried |= dict(uid_pairs(grave))
        assert all(len(stone.producer) == PRODUCER_BYTES for stone in grave.tombstones)
    assert buried == remembered_uids(tombstones)
    assert not state.uids.keys() & buried.keys()


def _check_held(state: State) -> None:
    """Only what is leased by a connection, and all of that."""
    bound: dict[int, set[int]] = {}
    for job in state.jobs:
        if job.lease is not None and job.lease.bound:
            bound.setdefault(job.lease.owner, set()).add(job.id)
    held = {owner: jobs_bound_to(state, owner) for owner in state.bound_jobs_by_owner}
    assert {owner: {job.id for job in jobs} for owner, jobs in held.items()} == bound
    assert sum(len(jobs) for jobs in held.values()) == sum(len(ids) for ids in bound.values())


def _check_dependencies(state: State) -> None:
    """A blocked job waits for open jobs, which know of it, or will soon hear how one ended."""
    for blocker, waiting in state.dependents.items():
        job = state.live_job(blocker)
        assert job is not None
        assert job.state not in (SUCCEEDED, FAILED)
        assert waiting
        assert all(waits_for(state, id, blocker) for id in waiting)
    for job in state.jobs:
        if job.extras is None:
            continue
        for blocker in job.extras.blockers or ():
            followup = state.pending_dependents.get(blocker)
            told_soon = followup is not None and job.id in followup.failed + followup.succeeded
            assert (job.id in state.dependents.get(blocker, {})) != told_soon


def _check_ring(state: State) -> None:
    assert all(job.state == GONE for job in state.finished_ring)
    assert {job.id for job in state.finished_ring} == {
        job.id for job in state.jobs if job.state == GONE
    }
    assert state.finished_ring_bytes == RING_ENTRY_BYTES * len(state.finished_ring)
    assert state.finished_ring_bytes <= state.settings.finished_bytes


def check_weights(state: State) -> None:
    """Zone by zone, what has weight is what lives there."""
    weights = state.live_bytes
    placed = Counter[int]()
    for at, weight in _weighing(state):
        placed[at // REGION_BYTES] += weight
    for zone in range(max(placed, default=0) + 2):
        assert weights.bytes_in_region_of(zone * REGION_BYTES) == placed[zone], zone
    assert weights.total == placed.total()
    loose = sum(session_record_bytes(session) for session in state.sessions.values())
    loose += sum(consumer_record_bytes(consumer) for consumer in state.consumers.values())
    loose += sum(map(reader_record_bytes, state.readers.values()))
    loose += sum(
        key_limit_record_bytes(gate)
        for queue in state.queues.values()
        for gate in (queue.key_limits or {}).values()
        if gate.theoretical_arrival_ns
    )
    schedules = sum(map(schedule_record_bytes, state.schedules.values()))
    assert state.schedule_bytes == schedules
    assert weights.unplaced == loose + schedules


def _weighing(state: State) -> Iterator[tuple[int, int]]:
    for job in state.jobs:
        if job.state == GONE:
            continue
        assert int(job.record_bytes) > job.payload_size
        yield job.payload_at, job.record_bytes
        if job.extras is not None:
            yield job.extras.result_at, job.extras.result_size
            yield job.extras.error_at, job.extras.error_size
    for queue in state.queues.values():
        yield queue.record_at, queue_record_bytes(queue)
    for value in state.values.values():
        yield value.value_at, value_record_bytes(value)


def check_heap(timers: Timers) -> None:
    for slot, timer in enumerate(timers.heap):
        assert timer.slot == slot
        assert timers.heap[max(slot - 1, 0) // 4].deadline <= timer.deadline


def _check_timers(engine: Engine) -> None:
    """A timer for each thing that ends by itself, and none for what is gone.

    Those of a queue may be early, or outlast the job they were set for.
    """
    state = engine.state
    planned = deadlines(state)
    armed = {id(timer): timer for timer in [*state.timers.heap, *state.key_timers.heap]}
    for whose, timer in _exact_timers(state).items():
        deadline = planned.pop(whose, 0)
        if deadline == FOREVER and whose[0] in ("ttl", "value"):
            deadline = 0
        assert (timer.deadline if timer.slot >= 0 else 0) == deadline, whose
        armed.pop(id(timer), None)
    for queue in state.queues.values():
        for kind, timer in (("wake", queue.wake_timer), ("dead", queue.dead_timer)):
            deadline = planned.pop((kind, queue.utf8), 0)
            assert not deadline or (timer.slot >= 0 and timer.deadline <= deadline)
            armed.pop(id(timer), None)
        for other in (queue.rate_timer, queue.idle_timer):
            armed.pop(id(other), None)
        for gate in (queue.key_limits or {}).values():
            armed.pop(id(gate.timer), None)
    for line in engine.waiters.values():
        for waiter in line.values():
            assert waiter.timer.slot >= 0
            armed.pop(id(waiter.timer), None)
    for watchers in engine.watchers.values():
        for watcher in watchers.values():
            armed.pop(id(watcher.timer), None)
    assert not planned
    assert not armed


def _exact_timers(state: State) -> dict[tuple[object, ...], Timer]:
    found: dict[tuple[object, ...], Timer] = {("tombstones",): state.tombstone_timer}
    for job in state.jobs:
        if job.lease is not None and job.lease.timer is not None:
            found["lease", job.id] = job.lease.timer
        if job.extras is not None and job.extras.timer is not None:
            found["ttl", job.id] = job.extras.timer
        elif job.extras is not None and job.extras.expires_at == FOREVER:
            found["ttl", job.id] = Timer(0, None)
    found |= {("value", value.key): value.timer for value in state.values.values()}
    found |= {("session", session.id): session.timer for session in state.sessions.values()}
    found |= {("consumer", each.name): each.timer for each in state.consumers.values()}
    found |= {("schedule", each.name): each.timer for each in state.schedules.values()}
    return found


def _check_waiting(engine: Engine) -> None:
    """Nobody waits beside a job that could be delivered; lines and watchers have no leftovers."""
    for name, line in engine.waiters.items():
        assert line
        assert list(line) == sorted(line)
        assert all(waiter.waiting and name in waiter.request.queues for waiter in line.values())
        queue = engine.queue(name)
        assert queue is None or queue.restrictions or not queue.ready.size
    for id, watchers in engine.watchers.items():
        assert watchers
        job = engine.job(id)
        assert all(watcher.job_id == job.id for watcher in watchers.values())
