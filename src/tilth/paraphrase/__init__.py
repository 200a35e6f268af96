"""Rewrites at a chosen similarity of meaning and of wording (Ogasa, Kajiwara and Arase)."""
