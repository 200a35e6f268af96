"""One module per job that joins several folders: the quickstart, later the papers' tables."""
