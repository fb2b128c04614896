"""Tests of the spec and the runtime that need no GPU."""
