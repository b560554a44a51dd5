"""The profile of a cycle: how stacks are read, whose time it is, and how it is added up.

Nothing here needs perf: what it prints is given.
"""

from pathlib import Path

import pytest

from benchmarks import rig
from benchmarks.profile import phases, recording, report, stacks, tally
from benchmarks.profile.phases import Classifier, Frame, Names

OURS = "/build/taskyard__mypyc.so"
PYTHON = "/lib/libpython3.11.so.1.0"
KERNEL = phases.KERNEL
MODULES = [
    "broker.replies",
    "engine.operations.facade",
    "engine.records.log",
    "journal.disk",
    "server.net.connection",
]

SAMPLES = f"""\
   10/10       5.000000000:    1000000 cpu-clock/freq=997,call-graph=dwarf,stack-size=16384/:
               1aee39 _PyObject_Malloc ({PYTHON})
               3ee150 CPyDef_log___RecordBuffer___append ({OURS})
               3ee151 CPyDef_engine___Engine___push ({OURS})

    7/7        5.000500000:    1000000 cpu-clock/freq=997,call-graph=dwarf,stack-size=16384/:
                 1234 main (/build/loadgen)

   10/10       5.001000000:    1000000 cpu-clock/freq=997,call-graph=dwarf,stack-size=16384/:
     ffffffff81e2fb7e tcp_sendmsg ({KERNEL})
     ffffffff816b670a ksys_write ({KERNEL})
     ffffffff821ea011 do_syscall_64 ({KERNEL})
                f838f __GI___libc_write (/lib/libc.so.6)

   10/11       5.002000000:    1000000 cpu-clock/freq=997,call-graph=dwarf,stack-size=16384/:
               1aee39 _PyObject_Malloc ({PYTHON})
"""

WAITS = f"""\
   10/10       5.010000000:          1                                  sched:sched_switch:
     ffffffff821f5618 __schedule ({KERNEL})
     ffffffff821f604f io_schedule ({KERNEL})
     ffffffff81af6353 blkdev_issue_flush ({KERNEL})
     ffffffff8170ccf2 __x64_sys_fdatasync ({KERNEL})
     ffffffff821ea011 do_syscall_64 ({KERNEL})
                fece0 fdatasync (/lib/libc.so.6)

   10/10       5.010001000: PERF_RECORD_SWITCH OUT
   10/10       5.010201000: PERF_RECORD_SWITCH IN
   10/10       5.011000000:          1                                  sched:sched_switch:
     ffffffff821f5618 __schedule ({KERNEL})
     ffffffff814151c1 exit_to_user_mode_loop ({KERNEL})

   10/10       5.011001000: PERF_RECORD_SWITCH OUT preempt
   10/10       5.011101000: PERF_RECORD_SWITCH IN
   10/10       5.012000000:          1                                  sched:sched_switch:
     ffffffff8172d0b8 do_epoll_wait ({KERNEL})
     ffffffff8172e6ca __x64_sys_epoll_pwait ({KERNEL})
     ffffffff821ea011 do_syscall_64 ({KERNEL})

   10/10       5.012001000: PERF_RECORD_SWITCH OUT
   10/10       5.012601000: PERF_RECORD_SWITCH IN
   10/10       5.013000000: PERF_RECORD_SWITCH OUT
"""


def stack(*frames: tuple[str, str]) -> list[Frame]:
    return [Frame(symbol, file) for symbol, file in frames]


@pytest.fixture
def classifier() -> Classifier:
    return Classifier(Names(MODULES))


@pytest.fixture
def taken() -> recording.Recording:
    return recording.Recording(
        ask=recording.Ask("masenko", "c50", "sync", "compiled", 200, 4.0, 1.0, ()),
        plain=recording.Rate(6_000.0, server_cores=0.5, generator_cores=0.25),
        profiled=recording.Rate(5_000.0, server_cores=0.6, generator_cores=0.25),
        cycles=10,
        flushed="inline",
        main_thread=10,
        began=5.0,
        ended=5.002,
        queued_seconds=0.0001,
        samples=list(stacks.read_samples(SAMPLES.splitlines(), 10)),
        waits=list(stacks.read_waits(WAITS.splitlines())),
    )


def test_samples_of_other_processes_are_left_out() -> None:
    samples = list(stacks.read_samples(SAMPLES.splitlines(), 10))

    assert [(sample.thread, sample.seconds) for sample in samples] == [
        (10, 0.001),
        (10, 0.001),
        (11, 0.001),
    ]
    assert samples[0].stack[1] == Frame("CPyDef_log___RecordBuffer___append", OURS)
    assert [len(sample.stack) for sample in samples] == [3, 4, 1]


def test_a_wait_lasts_until_the_thread_comes_back_and_has_the_stack_it_left_with() -> None:
    waits = list(stacks.read_waits(WAITS.splitlines()))

    assert [round(wait.seconds * 1e6) for wait in waits] == [200, 100, 600]
    assert [wait.preempted for wait in waits] == [False, True, False]
    assert waits[0].stack[2].symbol == "blkdev_issue_flush"


@pytest.mark.parametrize(
    ("symbol", "function"),
    [
        ("CPyDef_replies___ReplyQueue___send", "broker.replies.ReplyQueue.send"),
        (
            "CPyDef_replies___ReplyQueue____record_timing",
            "broker.replies.ReplyQueue._record_timing",
        ),
        (
            "CPyPy_server___net___connection___Connection___write",
            "server.net.connection.Connection.write",
        ),
        ("CPyDef_facade___Engine___push", "engine.operations.facade.Engine.push"),
        ("CPyDef_disk____sync_directory", "journal.disk._sync_directory"),
        ("CPyDef_replies___ReplyQueue___send.cold", "broker.replies.ReplyQueue.send"),
        ("CPyList_GetItem", ""),
        ("_PyObject_Malloc", ""),
    ],
)
def test_a_symbol_is_found_to_be_a_function(symbol: str, function: str) -> None:
    assert Names(MODULES).function(symbol) == function


@pytest.mark.parametrize(
    ("frames", "phase", "kind"),
    [
        (
            [("_PyObject_Malloc", PYTHON), ("CPyDef_log___RecordBuffer___append", OURS)],
            "RECORDS",
            "runtime",
        ),
        ([("CPyDef_facade___Engine___push", OURS)], "ENGINE", "compiled"),
        ([("uv__io_poll", "/site-packages/uvloop/loop.so")], "LOOP", "runtime"),
        ([("crc32c", "/google_crc32c/_crc32c.so")], "FRAMES", "runtime"),
        ([("_PyObject_Malloc", PYTHON)], "OTHER", "runtime"),
        (
            [("ext4", KERNEL), ("__x64_sys_pwritev2", KERNEL), ("do_syscall_64", KERNEL)],
            "WRITE",
            "kernel",
        ),
        ([("tcp", KERNEL), ("__sys_sendto", KERNEL), ("do_syscall_64", KERNEL)], "SEND", "kernel"),
        (
            [("asm_exc_page_fault", KERNEL), ("CPyDef_log___RecordBuffer___append", OURS)],
            "RECORDS",
            "kernel",
        ),
    ],
)
def test_the_innermost_frame_that_is_known_says_whose_time_it_is(
    classifier: Classifier, frames: list[tuple[str, str]], phase: str, kind: str
) -> None:
    found = stack(*frames)

    assert classifier.phase(found) == getattr(phases, phase)
    assert classifier.kind(found[0]) == kind


def test_every_module_that_is_compiled_has_a_phase() -> None:
    modules = report.compiled_modules("compiled")

    assert "broker.replies" in modules
    assert {phases.phase_of_function(f"{module}.f") for module in modules} <= set(phases.PHASES) - {
        phases.OTHER
    }


def test_the_functions_and_modules_with_a_phase_of_their_own_are_there() -> None:
    """A table that names what was renamed would tell something wrong in silence."""
    for name in phases.named():
        package, *rest = name.split(".")
        path = rig.ROOT / "src" / "taskyard" / package
        while path.is_dir():
            part, *rest = rest
            path = path / part if (path / part).is_dir() else path / f"{part}.py"
        source = path.read_text()
        assert all(f" {word}(" in source or f" {word}:" in source for word in rest), name


def test_the_phases_add_up_to_all_the_time_there_was(taken: recording.Recording) -> None:
    profile = tally.add_up(taken, MODULES)

    assert profile.cycle_us == pytest.approx(200)
    assert sum(cost.us for cost in profile.phases) == pytest.approx(200)
    assert sum(cost.share for cost in profile.phases) == pytest.approx(1)
    by_name = {cost.name: cost for cost in profile.phases}
    # 900 of 2,000 µs were waits; the rest is divided as the two samples say.
    assert by_name[phases.RECORDS].us == pytest.approx(55)
    assert by_name[phases.SEND].kinds == {"kernel": pytest.approx(55)}
    assert by_name[phases.DISK].kinds == {"waiting": pytest.approx(20)}
    assert by_name[phases.PREEMPTED].us == pytest.approx(10)
    assert by_name[phases.IDLE].us == pytest.approx(60)
    assert profile.others_us == pytest.approx(100)
    assert profile.queued_us == pytest.approx(10)


def test_the_report_has_phases_functions_and_what_was_waited_in(
    taken: recording.Recording,
) -> None:
    text = report.text(taken, tally.add_up(taken, MODULES), top=25)

    assert "## c50, masenko, sync, compiled, 200-byte payloads" in text
    assert "6,000 cycles/s, under perf 5,000; 2 samples" in text
    assert "| send | 55.00 | 27.5% |  |  | 55.00 |  |" in text
    assert "| all | 200.00 | 100.0% |" in text
    assert "| `engine.records.log.RecordBuffer.append` | 55.00 | 27.5% |  | 55.00 |  |" in text
    assert "| `_PyObject_Malloc` | Python and libraries | 55.00 | 27.5% |" in text
    assert "| `blkdev_issue_flush < fdatasync()` | 20.00 | 10.0% |" in text


def test_the_log_of_the_server_says_where_the_disk_was_flushed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("INFO disk flush measured mode=thread flush=2ms thread_switch=53µs\n")

    assert recording.flushed(log) == "thread"

    log.write_text("INFO the server listens\n")
    assert recording.flushed(log) == "not at once"


def test_without_perf_it_is_said_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(rig.BenchmarkError, match="apt-get install linux-perf"):
        recording.require_perf()
