"""Virtual IP addresses of this machine."""
