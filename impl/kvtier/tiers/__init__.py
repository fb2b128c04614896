"""Memory of the tiers, one file each; `Memory` is what an engine asks of it."""

from kvtier.tiers.base import Memory
from kvtier.tiers.disk import DiskFile
from kvtier.tiers.gpu import DevicePool
from kvtier.tiers.host import HostPool

__all__ = ["DevicePool", "DiskFile", "HostPool", "Memory"]
