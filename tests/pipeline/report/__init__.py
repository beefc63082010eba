"""Tests of the pipeline on Spark."""
