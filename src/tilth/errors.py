"""The errors for users: one line that says what is wrong, where, and the remedy."""

from __future__ import annotations


class TilthError(Exception):
    """Work failed; the message says why and what to do."""

    exit_code = 1


class InputError(TilthError):
    """The input is wrong; the message names the file, line or field and the remedy."""

    exit_code = 2
