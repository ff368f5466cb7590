"""`python -m rehearsal.engine`: prints the folder that holds the Pulumi CLI, after getting one if need be."""

import sys

from contract.errors import RayrigError
from rehearsal.engine.cli import ensure_cli


def main() -> int:
    """Progress goes to stderr, the folder alone to stdout."""
    try:
        print(ensure_cli())
    except RayrigError as error:
        print(error, file=sys.stderr)
        return int(error.exit_code)
    except KeyboardInterrupt:
        print("stopped; what was downloaded is kept, run it again to go on", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
