"""The runtime of workers: it takes jobs, runs them in pools, and says what came of them."""
