"""Lets `python -m tilth` run the command line."""

from tilth.cli.main import main

main()
