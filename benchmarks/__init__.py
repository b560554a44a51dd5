"""Benchmarks of the server, side by side with real peers. See docs/benchmarks.md."""
