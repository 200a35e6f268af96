"""The errors a user can meet: one line each, with what is wrong, where, and the mend."""

from __future__ import annotations


class TilthError(Exception):
    """Work failed; the message says why and what to do."""

    exit_code = 1


class InputError(TilthError):
    """What the user gave is wrong; the message names the file, line or field and the mend."""

    exit_code = 2
