"""WebSockets: what the libraries can do, and how near to that Taskyard comes."""
