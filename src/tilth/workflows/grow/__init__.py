"""Grow a small model from labelled rows, raw text, descriptions and a language model."""
