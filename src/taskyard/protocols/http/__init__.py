"""HTTP: connections, routing, and who is asking."""
