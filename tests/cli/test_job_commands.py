"""Jobs on the command line: pushed, fetched, ended, looked at."""

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest
from support.tool import Tool
from support.waiting import wait_for

UID = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"
EVIL = "\x1b[2J\x9b31m\u202eevil"


def push(tool: Tool, queue: str, *arguments: str, given: bytes = b"") -> str:
    return tool.ok("push", queue, *arguments, given=given).strip()


def take(tool: Tool, queue: str) -> str:
    """The ref of a job that is leased now."""
    [job] = tool("fetch", queue, "--json").objects
    return str(job["ref"])


# Pushing


def test_push_prints_the_id_and_the_payload_is_as_given(tool: Tool, queue: str) -> None:
    id = push(tool, queue, '{"to":  "ada"}')
    assert id.isdigit()
    assert tool("fetch", queue, "--raw", "--ack").data == b'{"to":  "ada"}'


def test_push_takes_the_payload_from_a_file_or_the_input(
    tool: Tool, queue: str, tmp_path: Path
) -> None:
    data = bytes(range(256))
    (tmp_path / "payload").write_bytes(data)
    push(tool, queue, "--file", str(tmp_path / "payload"))
    push(tool, queue, "-", given=b"from the input\n")
    push(tool, queue, given=b"also without a dash")
    taken = tool("fetch", queue, "--raw", "--ack", "--count", "3").data
    assert taken == data + b"\n" + b"from the input\n\n" + b"also without a dash\n"


def test_push_with_all_options(tool: Tool, queue: str) -> None:
    first = push(tool, queue, "first")
    options = ["--name", "send", "--priority", "7", "--delay", "1h", "--uid", UID, "--retries", "3"]
    options += ["--backoff", "2s,1m", "--attempts", "9", "--ttr", "90s", "--ttl", "2d"]
    id = push(tool, queue, "x", *options, "--dead-queue", "graves", "--after", first)
    [job] = tool("job", UID, "--json").objects
    assert job["id"] == int(id)
    wanted = {
        "name": "send",
        "priority": 7,
        "state": "blocked",
        "uid": UID,
        "max_fails": 4,
        "max_attempts": 9,
        "ttr": 90,
        "ttl": 172800,
        "dead_queue": "graves",
        "blocked_by": [int(first)],
    }
    assert {name: job[name] for name in wanted} == wanted
    assert job["run_at"] is not None


def test_a_push_with_a_known_uid_is_not_doubled(tool: Tool, queue: str) -> None:
    uid = "00000000-0000-4000-8000-000000000001"
    [first] = tool("push", queue, "x", "--uid", uid, "--json").objects
    [again] = tool("push", queue, "x", "--uid", uid, "--json").objects
    assert first == {"id": first["id"], "uid": uid, "queue": queue, "new": True}
    assert again == {**first, "new": False}


def test_push_at_a_time(tool: Tool, queue: str) -> None:
    id = push(tool, queue, "x", "--at", "2099-01-31T12:00Z")
    [job] = tool("job", id, "--json").objects
    assert (job["state"], job["run_at"]) == ("delayed", "2099-01-31T12:00:00.000000Z")


def test_each_line_is_a_job(tool: Tool, queue: str, tmp_path: Path) -> None:
    (tmp_path / "lines").write_bytes(b"".join(b"line %d\r\n" % n for n in range(6_001)))
    out = tool.ok("push", queue, "--lines", "--file", str(tmp_path / "lines"), "--priority", "2")
    assert out == f"{queue}: 6,001 jobs pushed.\n"
    [view] = tool("queues", "show", queue, "--json").objects
    assert view["counts"]["ready"] == 6_001
    assert tool("fetch", queue, "--raw").data == b"line 0"
    pushed = tool("push", queue, "--lines", "--json", given=b"a\nb").objects
    assert [each["queue"] for each in pushed] == [queue, queue]


def test_pushing_many_shows_a_bar(tool: Tool, queue: str, tmp_path: Path) -> None:
    fifo = tmp_path / "lines"
    os.mkfifo(fifo)
    with tool.in_terminal("push", queue, "--lines", "--file", str(fifo)) as terminal:
        with fifo.open("wb") as lines:
            lines.write(b"x\n" * 5_000)
            lines.flush()
            terminal.wait_for(lambda text: f"pushing to {queue}"[:40] in text)
        assert terminal.wait() == 0
        assert terminal.text == f"{queue}: 5,000 jobs pushed."  # the bar has gone


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["x", "--delay", "soon"],
            "--delay must be a time such as 250ms, 30s, 5m, 2h, 1d or 1h30m, not 'soon'.",
        ),
        (["x", "--at", "noon"], "--at must be a time such as"),
        (["x", "--delay", "1s", "--at", "2099-01-01"], "give --delay or --at, not both."),
        (["x", "--file", "y"], "give the payload or --file, not both."),
        (["x", "--uid", "7"], "uid '7' is not a UUID."),
        (["x", "--after", "zzz"], "'zzz' is neither an id nor a uid of a job."),
        (["x", "--lines"], "with --lines the payloads come from --file or from the input."),
        (["--lines", "--uid", UID], "--uid and --key name one job"),
    ],
)
def test_a_bad_push_is_refused_in_a_sentence(
    tool: Tool, arguments: list[str], sentence: str
) -> None:
    ran = tool("push", "nowhere", *arguments)
    assert ran.code == 2
    assert ran.err.startswith(f"taskyard push: {sentence}")
    assert ran.err.count("\n") == 1


def test_a_file_that_is_not_there(tool: Tool) -> None:
    ran = tool("push", "nowhere", "--file", "/no/such/file")
    assert (ran.code, ran.err) == (1, "taskyard push: /no/such/file: No such file or directory.\n")


# Fetching


def test_fetch_shows_refs_and_payloads(tool: Tool, queue: str) -> None:
    id = push(tool, queue, "a\nb")
    out = tool.ok("fetch", queue)
    assert out.splitlines()[0].split() == ["REF", "QUEUE", "NAME", "ATTEMPT", "LEASE", "PAYLOAD"]
    assert re.search(rf"^{id}-\d+-1 .* a\\nb$", out, re.MULTILINE)


def test_fetch_gives_json_for_scripts(tool: Tool, queue: str) -> None:
    push(tool, queue, '{"n": 1}')
    push(tool, queue, given=b"\xff\x00")
    push(tool, queue, "NaN")
    one, two, three = tool("fetch", queue, "--json", "--count", "5", "--ttr", "30s").objects
    assert one["payload"] == {"size": 8, "json": {"n": 1}}
    assert two["payload"] == {"size": 2, "base64": "/wA="}
    assert three["payload"] == {"size": 3, "text": "NaN"}
    assert set(one) == {
        *("ref", "id", "uid", "queue", "name", "attempt", "fails", "deadline", "payload")
    }


def test_fetch_of_nothing_is_code_5(tool: Tool, queue: str) -> None:
    ran = tool("fetch", queue, "--wait", "10ms")
    none = f"There is no job in {queue}; --wait 1m waits for one.\n"
    assert (ran.code, ran.out, ran.err) == (5, "", none)
    for form in ("--json", "--raw"):  # for programs
        ran = tool("fetch", queue, form)
        assert (ran.code, ran.out, ran.err) == (5, "", "")


def test_fetch_waits_for_a_job(tool: Tool, queue: str) -> None:
    with tool.in_terminal("fetch", queue, "--wait", "5m") as terminal:
        terminal.wait_for("waiting for a job in")
        push(tool, queue, "here")
        assert terminal.wait() == 0
        assert "here" in terminal.text
        assert "waiting" not in terminal.text


def test_ctrl_c_ends_a_wait_quietly(tool: Tool, queue: str) -> None:
    with tool.in_terminal("fetch", queue, "--wait", "5m") as terminal:
        terminal.wait_for("waiting for a job in")
        terminal.type("\x03")
        assert terminal.wait() == 130
        assert terminal.text in {"", "^C"}


# Ending


def test_ack_with_a_result(tool: Tool, queue: str) -> None:
    id = push(tool, queue, "x", "--ttl", "1h")
    ref = take(tool, queue)
    assert tool("result", id).code == 5
    assert tool.ok("ack", ref, "--result", '{"sent": true}') == f"{ref}: succeeded.\n"
    assert tool("result", id).data == b'{"sent": true}'
    [outcome] = tool("result", id, "--json").objects
    assert outcome["success"] is True
    assert outcome["result"] == {"size": 14, "json": {"sent": True}}


def test_a_lease_that_is_over_is_code_1_and_the_others_are_ended(tool: Tool, queue: str) -> None:
    push(tool, queue, "x")
    push(tool, queue, "y")
    first, second = take(tool, queue), take(tool, queue)
    tool.ok("ack", first)
    ran = tool("ack", first, second)
    assert ran.code == 1
    assert ran.out == f"{second}: succeeded.\n"
    assert ran.err.startswith(f"taskyard: {first}: the lease is over")


def test_nack_tries_again_or_not(tool: Tool, queue: str) -> None:
    id = push(tool, queue, "x", "--retries", "5")
    ref = take(tool, queue)
    assert tool.ok("nack", ref, "--error", "no luck", "--delay", "1h") == f"{ref}: delayed.\n"
    assert "no luck" in tool.ok("job", id)
    tool.ok("job", "retry", id)
    ref = take(tool, queue)
    assert tool.ok("nack", ref, "--return") == f"{ref}: ready.\n"
    ref = take(tool, queue)
    assert tool("nack", ref, "--final", "--error", "never", "--json").objects == [
        {"ref": ref, "state": "failed"}
    ]
    ran = tool("result", id)
    assert (ran.code, ran.err) == (1, f"taskyard result: job {id} has failed: never\n")


def test_extend(tool: Tool, queue: str) -> None:
    id = push(tool, queue, "x")
    ref = take(tool, queue)
    [told] = tool("extend", ref, "--for", "2h", "--json").objects
    [job] = tool("job", id, "--json").objects
    assert job["lease"]["deadline"][:19] == told["deadline"][:19]


def test_what_is_no_ref_is_refused(tool: Tool) -> None:
    for command in ("ack", "nack", "extend"):
        ran = tool(command, "42")
        assert ran.code == 2
        assert ran.err.startswith(f"taskyard {command}: '42' is no ref")


# A worker of the shell


def test_a_program_works_on_jobs(tool: Tool, queue: str) -> None:
    good = push(tool, queue, "good", "--ttl", "1h")
    bad = push(tool, queue, "bad", "--ttl", "1h", "--retries", "0")
    program = 'read word; echo "$word $TASKYARD_JOB_ID"; echo wrong >&2; test "$word" = good'
    ran = tool("fetch", queue, "--exec", program, "--count", "9", "--result", "--json", given=b"")
    assert ran.code == 1
    assert ran.err == "wrong\nwrong\n"
    assert [(each["exit"], each["state"]) for each in ran.objects] == [
        (0, "succeeded"),
        (1, "failed"),
    ]
    assert tool("result", good).data == f"good {good}\n".encode()
    assert tool("result", bad).err == f"taskyard result: job {bad} has failed: wrong\n"


def test_a_lease_is_kept_while_the_program_runs(tool: Tool, queue: str, tmp_path: Path) -> None:
    # Who stands still for longer than a lease has rightly lost it: then a longer one is tried.
    leases = ("300ms", "3s", "15s")
    assert any(is_lease_kept(tool, f"{queue}-{ttr}", ttr, tmp_path / ttr) for ttr in leases)


def is_lease_kept(tool: Tool, queue: str, ttr: str, go: Path) -> bool:
    """False if it was over before it had been extended three times, and the job has failed."""
    id = push(tool, queue, "x", "--ttr", ttr, "--attempts", "1")
    worker = subprocess.Popen(
        tool.argv("fetch", queue, "--exec", f"while ! test -e {go}; do sleep 0.05; done", "--json"),
        env=tool.environment,
        stdout=subprocess.PIPE,
    )
    deadlines: set[str] = set()

    def extended_or_over() -> bool:
        for held in tool("leases", queue, "--json").objects:
            deadlines.add(held["lease"]["deadline"])
        return len(deadlines) > 3 or state(tool, id) not in {"ready", "leased"}

    wait_for(extended_or_over)
    go.touch()
    out, _ = worker.communicate()
    if state(tool, id) == "failed":
        return False
    assert worker.returncode == 0
    assert b'"state":"succeeded"' in out
    return True


def state(tool: Tool, id: str) -> str:
    [job] = tool("job", id, "--json").objects
    return str(job["state"])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_worker_gives_its_job_back(
    tool: Tool, queue: str, tmp_path: Path, number: signal.Signals
) -> None:
    id = push(tool, queue, "x")
    started = tmp_path / "started"
    worker = subprocess.Popen(
        tool.argv("fetch", queue, "--exec", f"touch {started}; exec sleep 60", "--forever"),
        env=tool.environment,
    )
    wait_for(started.exists)
    worker.send_signal(number)
    assert worker.wait() == 130
    [job] = tool("job", id, "--json").objects
    assert (job["state"], job["fails"]) == ("ready", 0)


# Looking


def test_jobs_lists_by_state(tool: Tool, queue: str) -> None:
    push(tool, queue, "a", "--name", "one")
    push(tool, queue, "b", "--name", "two", "--delay", "1h")
    out = tool.ok("jobs", queue)
    assert [line.split()[1:3] for line in out.splitlines()] == [
        ["STATE", "NAME"],
        ["ready", "one"],
        ["delayed", "two"],
    ]
    assert [job["name"] for job in tool("jobs", queue, "--state", "delayed", "--json").objects] == [
        "two"
    ]
    assert [job["name"] for job in tool("jobs", queue, "--name", "one", "--json").objects] == [
        "one"
    ]
    assert len(tool("jobs", queue, "--limit", "1", "--json").objects) == 1


def test_the_limit_is_told_on_a_terminal(tool: Tool, queue: str) -> None:
    tool.ok("push", queue, "--lines", given=b"a\nb\nc\n")
    with tool.in_terminal("jobs", queue, "--limit", "2") as terminal:
        assert terminal.wait() == 0
        assert terminal.text.endswith("These are the first 2: --all shows all of them.")
    assert len(tool("jobs", queue, "--all", "--json").objects) == 3


def test_finished_jobs(tool: Tool, queue: str) -> None:
    id = push(tool, queue, "x")
    tool.ok("fetch", queue, "--ack")
    found = tool("jobs", "--finished", "--json", "--limit", "20").objects
    assert int(id) in [job["id"] for job in found]
    assert tool("jobs").code == 2


def test_a_job_is_told_in_full(tool: Tool, queue: str) -> None:
    id = push(tool, queue, '{"to": ["ada"]}', "--retries", "3", "--name", "send")
    ref = take(tool, queue)
    tool.ok("nack", ref, "--error", "Traceback\n  line\nKeyError: 'x'", "--delay", "2d")
    out = tool.ok("job", id)
    for expected in (
        rf"^job +{id}  [0-9a-f-]{{36}}$",
        rf"^queue +{queue}$",
        r"^name +send$",
        r"^state +delayed$",
        r"^attempts +1$",
        r"^failures +1$",
        r"^retries +1 of 3 used$",
        r"^due .*\(in (1d23h|2d)\)",
        r"^last error\n  Traceback\n    line\n  KeyError: 'x'$",
        r'^payload \(15 B\)\n  \{\n    "to": \[\n      "ada"\n    \]\n  \}$',
    ):
        assert re.search(expected, out, re.MULTILINE), (expected, out)


@pytest.mark.parametrize(
    ("retries", "told"),
    [("0", "none: the first failure is final"), ("2", "0 of 2 used"), ("-1", "without end")],
    ids=["none", "two", "any"],
)
def test_retries_are_told_in_words(tool: Tool, queue: str, retries: str, told: str) -> None:
    out = tool.ok("job", push(tool, queue, "x", "--retries", retries))
    assert re.search(rf"^retries +{told}$", out, re.MULTILINE), out
    assert re.search(r"^attempts +none yet$", out, re.MULTILINE)
    assert re.search(r"^failures +none$", out, re.MULTILINE)


def test_an_error_is_printed_once(tool: Tool, queue: str) -> None:
    id = push(tool, queue, "x")
    trace = 'Traceback (most recent call last):\n  File "a.py", line 1, in b\nKeyError: 7\n'
    tool.ok("nack", take(tool, queue), "--final", "--error", f"KeyError: 7\n{trace}")
    out = tool.ok("job", id)
    assert out.count("KeyError: 7") == 1
    assert "last error\n  KeyError: 7\n  Traceback (most recent call last):\n    File" in out
    assert "\nresult" not in out
    [view] = tool("job", id, "--json").objects
    assert view["result"] is None
    all_of_it = f"`taskyard job {id}` shows all of it"
    told = f"taskyard result: job {id} has failed: KeyError: 7 ({all_of_it})\n"
    assert tool("result", id).err == told


def test_an_empty_payload_is_called_so(tool: Tool, queue: str) -> None:
    assert "\npayload\n  empty\n" in tool.ok("job", push(tool, queue, ""))


def test_bytes_that_are_no_text_are_dumped(tool: Tool, queue: str) -> None:
    id = push(tool, queue, given=b"\x89PNG\r\n\x1a\n" + bytes(16))
    out = tool.ok("job", id)
    assert "00000000  89 50 4e 47 0d 0a 1a 0a 00" in out
    assert tool("job", "payload", id).data == b"\x89PNG\r\n\x1a\n" + bytes(16)
    spaced = push(tool, queue, '{"a":  [1,\n 2.50]}')
    assert tool("job", "payload", spaced).data == b'{"a":  [1,\n 2.50]}'


def test_a_job_is_retried_moved_scored_and_cancelled(tool: Tool, queue: str) -> None:
    id = push(tool, queue, "x", "--delay", "1h")
    assert tool.ok("job", "retry", id) == f"{id}: ready in {queue}.\n"
    assert tool.ok("job", "priority", id, "7") == f"{id}: its priority is 7.\n"
    assert tool.ok("job", "move", id, f"{queue}.b", "--front") == f"{id}: ready in {queue}.b.\n"
    refused = tool("job", "cancel", id)
    assert refused.code == 2
    assert "give --yes" in refused.err
    assert tool("job", "cancel", id, "--yes").code == 0
    [gone] = tool("job", id, "--json").objects
    assert gone["state"] == "gone"
    ran = tool("job", "99999999")
    assert ran.code == 1
    assert ran.err.startswith("taskyard job: There is no job 99999999")


def test_nothing_that_somebody_pushed_acts_on_a_terminal(tool: Tool, queue: str) -> None:
    name = "\u202eemag"
    id = push(tool, queue, EVIL, "--name", name, "--retries", "1")
    shown = ["jobs", queue], ["job", id], ["jobs", queue, "--json"], ["job", id, "--json"]
    printing = (*shown, ["job", "payload", id], ["fetch", queue])
    for arguments in printing:
        with tool.in_terminal(*arguments, columns=200, NO_COLOR="1") as terminal:
            assert terminal.wait() == 0
            text = terminal.raw.decode()
            assert "\x1b" not in text, arguments
            assert "\x9b" not in text, arguments
            assert "\u202e" not in text, arguments
    tool.ok("nack", f"{id}-1-1", "--final", "--error", EVIL)
    for arguments in (["dead", "list", queue], ["dead", "show", queue], ["events"]):
        with tool.in_terminal(*arguments, columns=200, NO_COLOR="1") as terminal:
            assert terminal.wait() == 0
            text = terminal.raw.decode()
            assert "\x1b" not in text, arguments
            assert "\u202e" not in text, arguments
