"""The soak: minutes of load on a small-segment server. See docs/benchmarks.md."""
