"""Evaluates encoders on STS sets, and classifiers and taggers on labelled sets."""
