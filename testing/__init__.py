"""Servers to test against: real ones, on loopback, small enough to read."""
