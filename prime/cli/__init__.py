"""The command line: a parser, and calls into what does the work."""

from prime.cli.commands import main

__all__ = ["main"]
