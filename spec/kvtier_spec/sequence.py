"""The sequence machine: suspended -> resuming -> active -> suspended -> ... -> closed.

A sequence enters `resuming` only while some of its pages come from a fallible tier; it falls back
to `suspended`, with a shorter prefix, when one of them was lost on the way. A grant that waits for
nothing goes from `suspended` to `active` at once. `closed` is entered from everywhere and left
never.
"""

from __future__ import annotations

from kvtier_spec.vocabulary import SequenceState as S

ROWS: dict[tuple[S, str], S] = {
    (S.SUSPENDED, "grant"): S.ACTIVE,
    (S.SUSPENDED, "wait"): S.RESUMING,
    (S.RESUMING, "grant"): S.ACTIVE,
    (S.RESUMING, "abort"): S.SUSPENDED,
    (S.RESUMING, "lose"): S.SUSPENDED,
    (S.ACTIVE, "suspend"): S.SUSPENDED,
    (S.SUSPENDED, "close"): S.CLOSED,
    (S.RESUMING, "close"): S.CLOSED,
    (S.ACTIVE, "close"): S.CLOSED,
}
"""state x event -> next state; what is not here is an error."""
