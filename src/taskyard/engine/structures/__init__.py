"""What the state keeps jobs in: orders, indexes, timers and counts."""
