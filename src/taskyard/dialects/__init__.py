"""The protocols: each a thin adapter from its bytes to engine calls and back.

A dialect keeps no queue state and takes no decisions about jobs.
"""
