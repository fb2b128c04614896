"""Keys: equal exactly when tokens, prefix and scope are."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvtier import BadRequest, Scope, block_keys

TOKENS = st.lists(st.integers(0, 3), max_size=12)


@given(TOKENS, TOKENS, st.integers(1, 3))
def test_keys_are_equal_exactly_where_prefixes_are(a: list[int], b: list[int], size: int) -> None:
    """The n-th keys agree if and only if all tokens up to there do."""
    scope = Scope(model="m")
    for index, (one, other) in enumerate(
        zip(block_keys(a, size, scope), block_keys(b, size, scope), strict=False), 1
    ):
        assert (one == other) == (a[: index * size] == b[: index * size])


@pytest.mark.parametrize(
    "other",
    [
        Scope(tenant="t"),
        Scope(model="t"),
        Scope(geometry="t"),
        Scope(adapter="t"),
        Scope(tenant="t", model="m"),
        Scope(tenant="tm"),
    ],
)
def test_scopes_never_meet(other: Scope) -> None:
    """Another tenant, model, geometry or adapter, however cut, gives other keys."""
    assert block_keys([1, 2], 1, other) != block_keys([1, 2], 1, Scope())
    assert block_keys([1], 1, Scope(tenant="t", model="m")) != block_keys(
        [1], 1, Scope(tenant="tm")
    )


def test_a_prompt_may_go_on_from_a_key() -> None:
    """Keys of a continuation are those of the whole."""
    scope = Scope(model="m")
    whole = block_keys(range(12), 4, scope)
    assert block_keys(np.arange(4, 12), 4, scope, parent=whole[0]) == whole[1:]
    assert block_keys([], 4, scope) == block_keys([1, 2, 3], 4, scope) == []


@pytest.mark.parametrize("tokens", [[1.5, 2.0], [[1, 2]], ["a"]])
def test_what_is_no_token_is_refused(tokens: list[object]) -> None:
    """Rounding a number would give two prompts one key."""
    with pytest.raises(BadRequest, match="integers"):
        block_keys(tokens, 1, Scope())  # type: ignore[arg-type]
    with pytest.raises(BadRequest, match="block_tokens"):
        block_keys([1], 0, Scope())
