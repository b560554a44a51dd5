"""Sources, sink, workers and session of Spark."""
