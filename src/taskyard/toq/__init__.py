"""toq: tasks as JSON on lists, for producers and consumers in any language.

A Producer enqueues Tasks, a Consumer runs them by the workers that were registered for their keys
and stores the Results. Both work on Taskyard (taskyard://) and on Redis (redis://).
"""

from taskyard.client.errors import ClientError, Refused, Unavailable
from taskyard.toq.consumer import Consumer
from taskyard.toq.messages import (
    FAILED,
    QUEUED,
    RESULT_FAILED,
    RESULT_SUCCEEDED,
    RETRYING,
    RUNNING,
    SUCCEEDED,
    Countdown,
    NotATask,
    Result,
    Task,
)
from taskyard.toq.producer import Producer, ResultTimeout

__all__ = [
    "FAILED",
    "QUEUED",
    "RESULT_FAILED",
    "RESULT_SUCCEEDED",
    "RETRYING",
    "RUNNING",
    "SUCCEEDED",
    "ClientError",
    "Consumer",
    "Countdown",
    "NotATask",
    "Producer",
    "Refused",
    "Result",
    "ResultTimeout",
    "Task",
    "Unavailable",
]
