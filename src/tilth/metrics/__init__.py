"""Evaluation metrics, confidence intervals and significance tests: pure functions of arrays."""
