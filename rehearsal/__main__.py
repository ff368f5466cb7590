"""`python -m rehearsal`."""

import sys

from rehearsal.command import main

sys.exit(main())
