"""What `pulumi up` runs."""

from infra.program import run

run()
