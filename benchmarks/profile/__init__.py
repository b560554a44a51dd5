"""Where the time of a cycle goes in a real server: `python -m benchmarks.profile`."""
