"""Commands about a broker and what is on it."""
