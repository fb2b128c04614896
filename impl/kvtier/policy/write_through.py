"""`write_through`: pages are copied to the host when they are used, and leave the gpu without.

A page that is used, and has no host copy, gets one if a host slot is free or a page can be given up
for it (never another's copy); else it is tried again at its next use. What has no copy when it
leaves the gpu is dropped. The selective form copies from the second request on that names a key.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import ClassVar

from kvtier.policy.base import Policy


class WriteThrough(Policy):
    """Every page is copied at its first use."""

    name: ClassVar[str] = "write_through"
    keeps_shadow: ClassVar[bool] = True
    writes_through: ClassVar[bool] = True


class WriteThroughSelective(WriteThrough):
    """A page is copied from its second use on.

    What was named once is remembered until a reset: some 100 bytes a distinct key.
    """

    name: ClassVar[str] = "write_through_selective"

    def __init__(self) -> None:
        self._again: dict[Hashable, bool] = {}

    def name_keys(self, keys: Iterable[Hashable]) -> None:
        """Remember which keys were named once, and which again."""
        for key in keys:
            self._again[key] = key in self._again

    def is_worth_a_copy(self, key: Hashable) -> bool:
        """Say whether the key was named before the request that uses it now."""
        return self._again.get(key, False)

    def forget(self) -> None:
        """Forget all keys: after a reset they mean other bytes."""
        self._again.clear()
