"""The checks on Spark: ingestion, lake, and verdicts at any size."""
