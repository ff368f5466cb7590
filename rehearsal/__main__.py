"""`python -m rehearsal`."""

import sys

try:
    from rehearsal.command import main

    code = main()
except KeyboardInterrupt:  # also while modules are still being loaded
    code = 130
sys.exit(code)
