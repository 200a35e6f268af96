"""Raw text to clean, distinct sentences."""
