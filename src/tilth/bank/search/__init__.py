"""Exact and approximate search of a bank."""
