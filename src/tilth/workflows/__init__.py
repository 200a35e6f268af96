"""Commands that join several folders, one file each."""
