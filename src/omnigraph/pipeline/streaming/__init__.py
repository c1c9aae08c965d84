"""Streaming: what Spark writes batch by batch becomes commits, each batch once."""
