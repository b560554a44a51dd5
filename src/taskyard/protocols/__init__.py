"""The protocols: bytes of clients to operations of the engine, and back."""
