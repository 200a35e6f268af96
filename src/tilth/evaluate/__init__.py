"""Measures what trained models are worth: sentence encoders on STS sets."""
