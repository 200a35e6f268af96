"""Make the training data a small language model is missing."""
