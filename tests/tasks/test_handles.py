"""Handles of tasks in programs with an event loop."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
from pathlib import Path

from support.sockets import HANG_GUARD
from tasks.workers import SOURCES
from toq.brokers import Running

from taskyard import App, group


def test_any_number_may_wait_for_results_at_once(server: Running) -> None:
    async def main() -> list[int]:
        with App(server.url, queue="handles-many") as app:

            @app.task
            def double(value: int) -> int:
                return 2 * value

            pushed = await group(double.s(value) for value in range(100)).apush()
            waiting = [asyncio.create_task(one.aresult(HANG_GUARD)) for one in pushed.handles]
            await asyncio.sleep(0)
            # A program's own calls of this kind have a few threads only.
            assert await asyncio.to_thread(app.worker(burst=True, poll=0.01).run)
            assert await pushed.aresults(HANG_GUARD) == [2 * value for value in range(100)]
            return [await one for one in waiting]

    assert asyncio.run(main()) == [2 * value for value in range(100)]


def test_a_program_can_end_that_has_given_up_on_a_result(server: Running, tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(
        textwrap.dedent(
            f"""
            import asyncio, contextlib, taskyard

            app = taskyard.App({server.url!r}, queue="handles-never")

            @app.task
            def never() -> None: ...

            async def main() -> None:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(never.push().aresult(), 0.05)
                print("given up")

            asyncio.run(main())
            """
        )
    )
    found = subprocess.run(
        [sys.executable, str(script)],
        env={"PYTHONPATH": SOURCES},
        capture_output=True,
        text=True,
        timeout=HANG_GUARD,
        check=False,
    )
    assert (found.returncode, found.stdout, found.stderr) == (0, "given up\n", "")


def test_a_task_that_has_ended_is_not_cancelled(server: Running) -> None:
    with App(server.url, queue="handles-ended") as app:

        @app.task
        def double(value: int) -> int:
            return 2 * value

        @app.task(retry=0)
        def fail() -> None:
            raise ValueError

        ended, failed = double.push(21), fail.push()
        assert app.worker(burst=True).run()
        waiting = double.push(1)
        assert not ended.cancel()
        assert not failed.cancel()
        assert waiting.cancel()
        assert not waiting.cancel()
        assert ended.result(0.0) == 42
        assert failed.info().state == "failed"
