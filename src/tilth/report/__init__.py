"""HTML reports of runs, and the quality figures of generated data."""
