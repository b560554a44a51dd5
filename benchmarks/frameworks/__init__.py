"""No-op tasks a second: `taskyard work` beside the task frameworks that use Redis."""
