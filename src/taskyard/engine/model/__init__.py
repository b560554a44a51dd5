"""The nouns of the engine: jobs, queues, the state, and what operations say about it."""
