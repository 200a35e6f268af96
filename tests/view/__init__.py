"""Tests of the local pages."""
