"""HTTP: connections, routing, and authentication."""
