"""The built-in manager: brokers of one machine, supervised and promoted."""
