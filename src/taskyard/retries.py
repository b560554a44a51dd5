"""What becomes of a failed job whose push said nothing of failures: the one default of all that is
Taskyard's own. The protocols of others keep what their texts say."""

from typing import Final

DEFAULT_RETRIES: Final = 3
DEFAULT_BACKOFF_S: Final = 1  # before the first retry; it doubles with each further one
DEFAULT_BACKOFF_CAP_S: Final = 300  # and is never longer
