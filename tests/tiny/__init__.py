"""Tiny models, banks, rows and runs that tests share, built in code."""

from tests.tiny.models import *  # noqa: F403
