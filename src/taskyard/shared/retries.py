"""The retries and pauses of a job whose push and queue set none: one default for RESP's JOB.*,
HTTP, the command line, clients, tasks and schedules. Other protocols keep what their texts say."""

from typing import Final

DEFAULT_RETRIES: Final = 3
DEFAULT_BACKOFF_S: Final = 1  # before the first retry; it doubles with each further one
DEFAULT_BACKOFF_CAP_S: Final = 300  # and is never longer
