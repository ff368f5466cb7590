"""`python -m provider ENGINE-ADDRESS`: what the engine runs, by way of plugin/pulumi-resource-rayrig."""

import sys

from provider.server import serve

raise SystemExit(serve(sys.argv[1:]))
