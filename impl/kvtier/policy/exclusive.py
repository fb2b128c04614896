"""`exclusive`: a page has one replica; a recall gives its host slot back, every eviction copies."""

from __future__ import annotations

from kvtier.policy.base import Policy


class Exclusive(Policy):
    """The reference: full capacity of both tiers, and a copy at every eviction."""
