"""A local web application: browse runs, annotate a sample, take the result away, try models."""
