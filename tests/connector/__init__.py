"""Tests of the data source."""
