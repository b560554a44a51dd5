"""Sockets of clients: listening, reading, sending, and their limits."""
