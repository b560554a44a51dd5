"""HTTP/1.1 on one listener: requests in, responses out. Knows nothing of jobs."""
