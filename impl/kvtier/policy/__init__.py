"""Orders and choices, one file a policy; `POLICIES` is where a policy is registered."""

from kvtier.policy.base import Policy
from kvtier.policy.exclusive import Exclusive
from kvtier.policy.page_first import PageFirst
from kvtier.policy.shadow_first import LatestShadowFirst, ShadowFirst, ShadowFirstHottest
from kvtier.policy.write_through import WriteThrough, WriteThroughSelective

POLICIES: dict[str, type[Policy]] = {
    policy.name: policy
    for policy in (
        Exclusive,
        PageFirst,
        ShadowFirst,
        ShadowFirstHottest,
        WriteThrough,
        WriteThroughSelective,
    )
}
"""Policies of gpu and host, by name."""

COLD_POLICIES: dict[str, type[Policy]] = {
    "none": Exclusive,
    "shadow_first": LatestShadowFirst,
    "page_first": PageFirst,
}
"""Policies of the tiers behind the host: what becomes of the copy there when a page comes up."""

__all__ = [
    "COLD_POLICIES",
    "POLICIES",
    "Exclusive",
    "LatestShadowFirst",
    "PageFirst",
    "Policy",
    "ShadowFirst",
    "ShadowFirstHottest",
    "WriteThrough",
    "WriteThroughSelective",
]
