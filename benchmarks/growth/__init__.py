"""What becomes of Taskyard when there is much of everything: each bar of growth, measured."""
