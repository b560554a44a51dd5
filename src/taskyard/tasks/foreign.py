"""Names of Celery, RQ and their like: an error for one of them gives Taskyard's own name."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from taskyard.shared.misspelt import did_you_mean


class KnowsForeignNames:
    """An AttributeError for a name that is missing says which one to use."""

    _foreign_names: ClassVar[dict[str, str]] = {}  # name: how it is done here

    if not TYPE_CHECKING:  # or every name would be right for a type checker

        def __getattr__(self, name: str) -> object:
            kind = type(self).__name__
            ours = self._foreign_names.get(name)
            if ours is not None:
                hint = f": {ours}"
            elif name.startswith("_"):
                hint = ""
            else:
                hint = did_you_mean(name, [one for one in dir(self) if not one.startswith("_")])
            raise AttributeError(f"{kind!r} object has no attribute {name!r}{hint}", name=name)


_PUSH_HINT = "push it with push(...)"
TASK_HINTS = {
    "delay": _PUSH_HINT,
    "apply_async": f"{_PUSH_HINT}, or push_in(seconds, ...) and push_at(time, ...) for later",
    "enqueue": _PUSH_HINT,
    "send": _PUSH_HINT,
    "kiq": "push it with await apush(...)",
    "schedule": "push it with push_in(seconds, ...) or push_at(time, ...)",
    "enqueue_in": "push it with push_in(seconds, ...)",
    "enqueue_at": "push it with push_at(time, ...)",
    "send_with_options": "with_options(...).push(...)",
    "apply": "call it, which runs it here and now",
    "retry": "raise taskyard.TryAgain(delay=seconds) in the task",
    "signature": "s(...) makes a step of a chain or group",
    "subtask": "s(...) makes a step of a chain or group",
    "request": "taskyard.current_job() has the job that a task runs for",
    "AsyncResult": "handle(id) is that of a job that was pushed before",
}
HANDLE_HINTS = {
    "get": "result(wait=seconds) gives what the task gave",
    "wait": "result(wait=seconds) waits",
    "join": "result(wait=seconds) waits",
    "ready": "is_done() says whether it has ended",
    "done": "is_done() says whether it has ended",
    "is_finished": "is_done() says whether it has ended",
    "successful": "result() gives what the task gave, or raises TaskFailed",
    "return_value": "result() gives what the task gave",
    "exc_info": "result() raises TaskFailed, whose error has the traceback",
    "traceback": "result() raises TaskFailed, whose error has the traceback",
    "status": "info().state tells it",
    "state": "info().state tells it",
    "get_status": "info().state tells it",
    "revoke": "cancel() deletes the job",
    "abort": "cancel() deletes the job",
    "task_id": "id and uid name the job",
    "job_id": "id and uid name the job",
    "parent": "before has the handles of the steps before it",
}
STEP_HINTS = {
    "delay": "push() pushes it",
    "apply_async": "push() pushes it",
    "set": "with_options(...) of the task, before s(...)",
}
GROUP_HANDLE_HINTS = {
    "get": "results(wait=seconds) gives what the tasks gave",
    "join": "results(wait=seconds) gives what the tasks gave",
}
# Words of other libraries in the call that pushes, where ours are arguments of the task.
PUSH_HINTS = {
    "countdown": "push_in(seconds, ...) pushes it for later",
    "delay": "push_in(seconds, ...) pushes it for later",
    "eta": "push_at(time, ...) pushes it for later",
    "run_at": "push_at(time, ...) pushes it for later",
    "expires": "with_options(ttl=seconds).push(...) has it forgotten",
    "queue": "with_options(queue=...).push(...) has it in another queue",
    "priority": "with_options(priority=...).push(...)",
    "retry": "with_options(retry=...).push(...)",
    "retries": "with_options(retry=...).push(...)",
    "task_id": "handle(id) is that of a job that was pushed before",
}
# Options of decorators.
OPTION_HINTS = {
    "max_retries": "it is retry=3 here, with backoff=(first, most)",
    "retries": "it is retry=3 here, with backoff=(first, most)",
    "retry_backoff": "it is backoff=(first, most) here, beside retry",
    "default_retry_delay": "it is backoff=(first, most) here, beside retry",
    "autoretry_for": "it is retry=taskyard.Retry(3, on=(...,)) here",
    "time_limit": "it is timeout here",
    "soft_time_limit": "it is soft_timeout here",
    "job_timeout": "it is timeout here",
    "expires": "it is ttl here",
    "queue_name": "it is queue here",
    "ignore_result": "it is result=False here",
    "bind": "give the function an argument of the type taskyard.CurrentJob",
    "rate_limit": "it is a setting of the queue: taskyard queues set QUEUE --rate 10/1s",
    "cron": "@app.periodic(cron) above @app.task makes a schedule",
}
