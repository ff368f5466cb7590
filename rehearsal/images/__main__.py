"""`python -m rehearsal.images`: builds the lab's images and says what stands; the part that needs root."""

import sys
import time

from contract.errors import RayrigError
from rehearsal.images import ensure_lab_images


def main() -> int:
    """Builds what is missing; the exit code of the error when it can't."""
    start = time.monotonic()

    def say(line: str) -> None:
        print(f"{time.monotonic() - start:6.1f} s  {line}", flush=True)

    try:
        images = ensure_lab_images(say=say)
    except RayrigError as error:
        print(error, file=sys.stderr)
        return int(error.exit_code)
    say(f"node image {images.node_image}")
    say(f"Ray image's base {images.ray_base_image_id}")
    say(f"prepared Docker root {images.prepared_docker_root}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
