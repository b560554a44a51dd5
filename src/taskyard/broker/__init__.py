"""Turns, group commit, and replies that wait for it.

Knows the engine and the journal, and no protocol, socket or event loop: those come in through the
classes in interfaces.py.
"""
