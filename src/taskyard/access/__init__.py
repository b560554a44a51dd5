"""Permissions and authentication: users, their secrets, and what they may do.

Protocols ask a Principal; the server decides where principals come from.
"""
