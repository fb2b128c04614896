"""The slot machine: four states, and a generation that goes up at each take.

`take` and `give` are verbs of the page events; `retire`, `quarantine`, `readmit` and `grow` are
events of their own. A quarantined slot comes back once the job that may touch it has ended.
"""

from __future__ import annotations

from kvtier_spec.vocabulary import Kind, SlotState

VERBS: dict[str, tuple[SlotState, SlotState]] = {
    "take": (SlotState.FREE, SlotState.OWNED),
    "give": (SlotState.OWNED, SlotState.FREE),
    "quarantine": (SlotState.OWNED, SlotState.QUARANTINED),
}
"""What a verb of a page event does to a slot."""

EVENTS: dict[Kind, tuple[SlotState, SlotState]] = {
    Kind.RETIRE: (SlotState.FREE, SlotState.RETIRING),
    Kind.QUARANTINE: (SlotState.FREE, SlotState.QUARANTINED),
    Kind.READMIT: (SlotState.QUARANTINED, SlotState.FREE),
    Kind.GROW: (SlotState.RETIRING, SlotState.FREE),
}
"""Events of a slot: from, to. The guard is that it is in `from`."""
