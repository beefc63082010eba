"""Commands about clusters and their managers."""
