"""The journal: records on disk, in frames, in segments; and how they are read back.

Knows the engine's records and log, and nothing of brokers, sockets or event loops.
"""
