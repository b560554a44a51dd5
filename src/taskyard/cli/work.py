"""`taskyard work`: runs the tasks of an app."""

import argparse
import importlib
import logging
import os
import sys
import traceback
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from taskyard.cli.command import print_error
from taskyard.cli.explain import explain
from taskyard.cli.failure import CommandFailed
from taskyard.cli.main import CommandParser, ExamplesFormatter, examples
from taskyard.shared.exit_codes import DONE, INTERRUPTED, REFUSED, USAGE

if TYPE_CHECKING:
    from taskyard.tasks.app import App
    from taskyard.tasks.worker import Worker

_DEFAULT_LEASE_S: Final = 30.0
POOLS: Final = ("threads", "processes", "async")
_DOC: Final = (
    "Run the tasks of an app until SIGTERM or SIGINT, which lets them finish. A second signal ends "
    "at once and gives them back; then the exit code is 130."
)


def main(argv: Sequence[str]) -> int:
    made = parser()
    options = made.parse_args(argv)
    try:
        return _work(options)
    except CommandFailed as failure:
        return print_error(made.prog, str(failure), failure.code)


def _work(options: argparse.Namespace) -> int:
    # Imported late: a refused command line or --help needs none of it.
    from taskyard.client.errors import ClientError

    if options.spark:
        from taskyard.cli.work_spark import work_on_spark

        return work_on_spark(options)
    _refuse_spark_options(options)
    app = find_app(options.app)
    if options.url:
        app.connect_to(options.url)
    worker = _worker(app, options)
    configure_logs(options)
    log = logging.getLogger("taskyard.worker")
    log.info("%s", _describe_worker(worker, options))
    try:
        finished = worker.run()
    except (ClientError, OSError) as error:
        raise explain(error) or CommandFailed(f"{error}.", REFUSED) from error
    return DONE if finished else INTERRUPTED


def configure_logs(options: argparse.Namespace) -> None:
    """Lines as the server writes them."""
    from taskyard.server.logs import JsonFormatter, SentenceFormatter
    from taskyard.tasks import logs

    formatter = JsonFormatter() if options.log_format == "json" else SentenceFormatter()
    logs.configure(getattr(logging, options.log_level.upper()), formatter)


def parser() -> CommandParser:
    result = CommandParser(
        prog="taskyard work",
        description=_DOC,
        epilog=examples(
            "taskyard work mail.tasks:app",
            "taskyard work mail.tasks:app --concurrency 8 --pool processes",
            "taskyard work mail.tasks:app --queues urgent:3,mail:1 --burst",
            "taskyard work mail.tasks:app --spark --master spark://10.0.0.1:7077",
        ),
        formatter_class=ExamplesFormatter,
        allow_abbrev=False,
    )
    result.add_argument(
        "app", metavar="MODULE:APP", help="where the App is, such as mail.tasks:app"
    )
    result.add_argument(
        "--concurrency", type=_count, default=4, metavar="N", help="tasks at once (default 4)"
    )
    result.add_argument(
        "--pool", choices=POOLS, default="threads", help="what runs them (default threads)"
    )
    result.add_argument(
        "--queues",
        type=_queues,
        metavar="A,B",
        help="looked at in this order, or a:3,b:1 with weights (default: those of the tasks)",
    )
    result.add_argument("--burst", action="store_true", help="end when nothing is left to do")
    result.add_argument(
        "--prefetch",
        type=_number,
        metavar="N",
        help="jobs to hold ready beyond those that run (default: by how long they take)",
    )
    result.add_argument(
        "--lease",
        type=_seconds,
        metavar="S",
        help="seconds after which others run the jobs of a worker that died (default 30)",
    )
    result.add_argument(
        "--poll",
        type=_seconds,
        default=1.0,
        metavar="S",
        help="seconds for which the server is asked to wait for a job (default 1)",
    )
    _add_spark_options(result)
    result.add_argument("--url", metavar="URL", help="the server, if not the one the app names")
    result.add_argument(
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        default="info",
        help="least severe messages to log (default info)",
    )
    result.add_argument(
        "--log-format",
        choices=("text", "json"),
        default="text",
        help="how log lines are written (default text)",
    )
    return result


def _add_spark_options(result: CommandParser) -> None:
    group = result.add_argument_group("workers on Spark")
    group.add_argument(
        "--spark",
        action="store_true",
        help="run the tasks on Spark executors; also a Consumer of toq in place of the app",
    )
    group.add_argument(
        "--master",
        metavar="M",
        help="the Spark master, or sc://HOST:PORT for Spark Connect (default local[*])",
    )
    group.add_argument(
        "--ui",
        action="store_true",
        help="let Spark show what it does on a page of its own, to all who reach its port",
    )
    group.add_argument(
        "--consumer",
        metavar="NAME",
        help="under which batches are leased, one driver each (default: spark- and the app's name)",
    )
    group.add_argument(
        "--batch", type=_count, metavar="N", help="jobs of a batch, at most (default 10000)"
    )


def _refuse_spark_options(options: argparse.Namespace) -> None:
    for name in ("master", "consumer", "batch"):
        if getattr(options, name) is not None:
            raise CommandFailed(f"--{name} is for workers on Spark: add --spark.", USAGE)


def _worker(app: "App", options: argparse.Namespace) -> "Worker":
    try:
        _ = app.address
        return app.worker(
            queues=options.queues,
            concurrency=options.concurrency,
            pool=options.pool,
            prefetch=options.prefetch,
            lease=_DEFAULT_LEASE_S if options.lease is None else options.lease,
            burst=options.burst,
            poll=options.poll,
        )
    except (ValueError, TypeError) as error:
        raise CommandFailed(f"{error}.", USAGE) from error


def find_app(location: str) -> "App":
    from taskyard.tasks.app import App

    found = import_object(location)
    if not isinstance(found, App):
        raise CommandFailed(f"{location} is a {type(found).__name__}, not a taskyard.App.", USAGE)
    found.set_location(location)
    return found


def import_object(location: str) -> object:
    """What a module has by that name."""
    module_name, mark, name = location.partition(":")
    if not module_name or not mark or not name:
        raise CommandFailed(
            f"{location!r} does not name an app: write MODULE:APP, such as tasks:app.", USAGE
        )
    sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and (module_name == error.name or module_name.startswith(error.name + ".")):
            raise CommandFailed(
                f"there is no module {error.name} in {os.getcwd()}.", USAGE
            ) from error
        raise CommandFailed(f"{module_name} cannot be imported: {error}.", USAGE) from error
    except Exception as error:
        raise CommandFailed(
            f"{module_name} cannot be imported: {_error_location(error)}.", USAGE
        ) from error
    found: object = module
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is None:
        raise CommandFailed(f"{module_name} has no {name}.", USAGE)
    return found


def _error_location(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    said = f"{type(error).__name__}: {error}"
    return f"{said} ({frames[-1].filename}:{frames[-1].lineno})" if frames else said


def _describe_worker(worker: "Worker", options: argparse.Namespace) -> str:
    names = ", ".join(worker.app.tasks) or "no tasks"
    shown = options.queues.items() if isinstance(options.queues, dict) else None
    queues = (
        ", ".join(worker.queues.names)
        if shown is None
        else ", ".join(f"{name}:{weight:g}" for name, weight in shown)
    )
    return (
        f"{worker.app.name} runs {names} of {queues} "
        f"in {worker.concurrency} {_pool_words(worker)} (pid {os.getpid()})"
    )


def _pool_words(worker: "Worker") -> str:
    words = {"threads": "thread", "processes": "process", "async": "coroutine"}
    word = words[worker.kind]
    if worker.concurrency == 1:
        return word
    return {"process": "processes"}.get(word, word + "s")


def _queues(text: str) -> list[str] | dict[str, float]:
    names: dict[str, float | None] = {}
    for part in text.split(","):
        name, weight = _queue(part.strip())
        if name in names:
            raise argparse.ArgumentTypeError(f"queue {name} is named twice")
        names[name] = weight
    weights = {name: weight for name, weight in names.items() if weight is not None}
    if weights and len(weights) != len(names):
        raise argparse.ArgumentTypeError("give all queues a weight, as in a:3,b:1, or none")
    return weights or list(names)


def _queue(text: str) -> tuple[str, float | None]:
    """Parse a queue: what is behind the last colon is a weight if it is a number."""
    name, mark, weight = text.rpartition(":")
    try:
        value = float(weight) if mark else None
    except ValueError:
        value = None
    if value is None:
        name = text
    if not name:
        raise argparse.ArgumentTypeError("a queue has no name")
    if value is not None and not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"the weight of {name} must be above 0")
    return name, value


def _count(text: str) -> int:
    value = _number(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def _number(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return value
