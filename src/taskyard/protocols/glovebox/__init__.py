"""Glovebox: messages in JSON or bincode over WebSocket."""
