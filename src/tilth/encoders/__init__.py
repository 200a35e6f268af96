"""Sentence encoders: trained from pairs, from triplets, from raw text, or from word vectors."""
