"""Labelled data sets from instructions: task specs, self-debiased decoding, the generate run."""
