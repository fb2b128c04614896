"""Keys of blocks: a cryptographic hash chained over the prefix, with a scope.

Two blocks have the same key exactly when all tokens up to and including them are the same and they
were computed for the same tenant, model, geometry and adapter. A fast non-cryptographic hash would
let one tenant craft a prompt that hits another's pages; BLAKE2b of the standard library costs 1 µs
a block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np

from kvtier.errors import BadRequest

KEY_BYTES = 32
"""256 bits: collisions are not a case to handle."""

_TOKEN = np.dtype("<i8")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What a block's bytes depend on besides its tokens.

    `geometry` is the layout of a page: dtype, heads, layers, tokens a block. Pages of different
    scopes never meet.
    """

    tenant: str = ""
    model: str = ""
    geometry: str = ""
    adapter: str = ""

    def seed(self) -> bytes:
        """Hash the scope: the parent of every first block."""
        parts = [part.encode() for part in (self.tenant, self.model, self.geometry, self.adapter)]
        framed = b"".join(len(part).to_bytes(8, "little") + part for part in parts)
        return blake2b(framed, digest_size=KEY_BYTES, person=b"kvtier scope").digest()


def block_keys(
    tokens: Sequence[int], block_tokens: int, scope: Scope, *, parent: bytes | None = None
) -> list[bytes]:
    """Name the full blocks of a prompt; a partial last block has no key.

    `tokens` are token ids, `block_tokens` how many make a block. `parent` is the key of the block
    before the first token, where a prompt goes on. O(tokens).

    >>> scope = Scope(model="m")
    >>> a, b = block_keys([1, 2, 3, 4, 5], 2, scope)
    >>> block_keys([3, 4], 2, scope, parent=a) == [b]
    True
    >>> block_keys([1, 2], 2, Scope(model="m", tenant="other")) == [a]
    False
    """
    if block_tokens < 1:
        raise BadRequest(f"block_tokens is {block_tokens}; a block has at least one token")
    data = np.asarray(tokens)
    if data.ndim != 1 or (data.size and data.dtype.kind not in "iu"):
        raise BadRequest(f"tokens are a flat sequence of integers, not {data.dtype} {data.shape}")
    data = data.astype(_TOKEN)
    key = scope.seed() if parent is None else parent
    found = []
    for start in range(0, len(data) - block_tokens + 1, block_tokens):
        block = data[start : start + block_tokens].tobytes()
        key = blake2b(key + block, digest_size=KEY_BYTES, person=b"kvtier block").digest()
        found.append(key)
    return found
