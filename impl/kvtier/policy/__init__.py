"""Orders and choices, one file a policy; `POLICIES` is where a policy is registered."""

from kvtier.policy.base import Policy
from kvtier.policy.exclusive import Exclusive
from kvtier.policy.page_first import PageFirst
from kvtier.policy.shadow_first import ShadowFirst, ShadowFirstHottest

POLICIES: dict[str, type[Policy]] = {
    policy.name: policy for policy in (Exclusive, PageFirst, ShadowFirst, ShadowFirstHottest)
}
"""Policies by name."""

__all__ = ["POLICIES", "Exclusive", "PageFirst", "Policy", "ShadowFirst", "ShadowFirstHottest"]
