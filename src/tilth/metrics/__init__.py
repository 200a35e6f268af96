"""Figures and how sure they are: pure functions of arrays."""
