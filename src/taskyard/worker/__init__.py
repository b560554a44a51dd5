"""The runtime of workers: it fetches jobs, runs them in pools, and reports their verdicts."""
