"""Tests of the broker room."""
