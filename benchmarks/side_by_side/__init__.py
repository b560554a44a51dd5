"""Taskyard in each dialect beside other queue servers, in the same run on the same machine."""
