"""Tests of the rgmanager scripts: they are called as rgmanager calls them, on real brokers."""
