"""Commands that measure and verify."""
