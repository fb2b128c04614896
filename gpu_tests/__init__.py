"""Tests that need a GPU; each skips with its reason where there is none."""
