"""A node's own /var/lib/docker: a copy of the prepared one, whose layers it shares with every other node.

The layers' files are bound in read-only, not linked or copied: an overlay never writes to its lower layers, so a node
begins with the Ray image's base in a few milliseconds, ends as fast, and can do no harm to what others stand on.
"""

import shutil
from pathlib import Path

from docker.types import Mount

INSIDE = Path("/var/lib/docker")


def lay_out(prepared: Path, target: Path) -> list[Mount]:
    """Copies all but the layers' files, a few MB, and returns the mounts that put those into a node.

    Raises:
        OSError: the target exists, or could not be written.
    """
    layers = [layer.relative_to(prepared) for layer in prepared.glob("overlay2/*/diff")]
    shared = {prepared / layer for layer in layers}

    def left_out(folder: str, names: list[str]) -> list[str]:
        # Device nodes are Docker's notes of its own disk, and made anew where they are missing.
        parent = Path(folder)
        return [name for name in names if parent in shared or (parent / name).is_block_device()]

    shutil.copytree(prepared, target, symlinks=True, ignore=left_out)
    return [Mount(str(INSIDE / layer), str(prepared / layer), type="bind", read_only=True) for layer in layers]
