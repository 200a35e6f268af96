"""Rewrites texts at a requested similarity of meaning and wording (Ogasa, Kajiwara and Arase)."""
