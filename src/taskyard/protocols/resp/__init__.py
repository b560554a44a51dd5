"""RESP, the protocol of Redis: lists, priority queues and jobs."""
