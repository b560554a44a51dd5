"""Who may do what: users, their secrets and permissions, and the gate they come in by.

Dialects and HTTP ask a Principal; where principals come from is up to the server.
"""
