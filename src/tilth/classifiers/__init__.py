"""Classifiers and taggers: fine-tuning of encoders on labelled rows."""
