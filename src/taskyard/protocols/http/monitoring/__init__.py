"""Events, live figures, metrics, health and history."""
