"""The data pipeline: records of the journal, Spark sources and sinks, the lake and its report."""
