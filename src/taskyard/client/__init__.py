"""Programs that use a server: the connection to it, and the worker runtime.

Nothing in here knows the code of the server: the two share the wire and nothing else.
"""
