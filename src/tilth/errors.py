"""The errors for users: one line that says what is wrong, where, and the remedy."""

from __future__ import annotations

from tilth.urls import with_urls


def one_line(error: Exception) -> str:
    """Return what an error says, in one line."""
    return " ".join(str(error).split())


class TilthError(Exception):
    """Work failed; the message says why and what to do."""

    exit_code = 1

    def __str__(self) -> str:
        """Return the message; local copies are named by their URLs."""
        return with_urls(super().__str__())


class InputError(TilthError):
    """The input is wrong; the message names the file, line or field and the remedy."""

    exit_code = 2
