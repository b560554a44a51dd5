"""Taskyard in each protocol beside other queue servers, in the same run on the same machine."""
