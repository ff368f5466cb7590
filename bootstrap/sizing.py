"""How much memory Ray's object store and the container's /dev/shm get: one pure function, so that they always fit."""

from dataclasses import dataclass

OBJECT_STORE_SHARE = 0.30
"""Ray's own default share (DEFAULT_OBJECT_STORE_MEMORY_PROPORTION)."""
OBJECT_STORE_CAP_BYTES = 200_000_000_000
"""Ray's own cap (DEFAULT_OBJECT_STORE_MAX_MEMORY_BYTES)."""
OBJECT_STORE_FLOOR_BYTES = 75 * 2**20
"""Ray refuses less (OBJECT_STORE_MINIMUM_MEMORY_BYTES)."""
SHM_EXTRA_SHARE = 0.05
"""Room in /dev/shm beside the object store: torch's data loaders and NCCL use it too."""
SHM_EXTRA_FLOOR_BYTES = 128 * 2**20
STEP_BYTES = 64 * 2**20
"""Sizes are rounded down to this, so that a few kilobytes more or less at a reboot do not change the container."""


@dataclass(frozen=True, kw_only=True)
class MemorySizes:
    """Sizes in bytes; `shm_bytes` is always larger than `object_store_bytes`."""

    object_store_bytes: int
    shm_bytes: int


def memory_sizes(*, type_bytes: int, shown_bytes: int) -> MemorySizes:
    """Sizes the object store and /dev/shm from the smaller of what the type has and what the node shows.

    Args:
        type_bytes: memory of the instance type.
        shown_bytes: MemTotal of the node; less than the type's on a real machine, the host's in a container node.

    Raises:
        ValueError: less memory than the smallest object store needs.
    """
    usable = min(type_bytes, shown_bytes)
    wanted = min(int(usable * OBJECT_STORE_SHARE), OBJECT_STORE_CAP_BYTES)
    if wanted < OBJECT_STORE_FLOOR_BYTES:
        raise ValueError(f"{usable / 2**20:.0f} MiB of memory are too few for Ray's object store")
    store = max(wanted // STEP_BYTES * STEP_BYTES, OBJECT_STORE_FLOOR_BYTES)
    extra = max(int(usable * SHM_EXTRA_SHARE), SHM_EXTRA_FLOOR_BYTES)
    return MemorySizes(object_store_bytes=store, shm_bytes=store + (extra + STEP_BYTES - 1) // STEP_BYTES * STEP_BYTES)
