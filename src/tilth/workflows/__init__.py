"""What joins several folders for one command."""
