"""The stages of a job's life that a client can be notified of, as bits."""

from typing import Final

STAGE_READY: Final = 1
STAGE_WRITE: Final = 2
STAGE_SYNC: Final = 4
STAGE_ASSIGN: Final = 8
STAGE_FINISH: Final = 16
STAGE_RETRY: Final = 32
STAGE_DROP: Final = 64
ALL_STAGES: Final = 127

# Beside them: the notified client waits for the job's end, and without it the job is not wanted.
SYNCHRONOUS_CALL: Final = 128
