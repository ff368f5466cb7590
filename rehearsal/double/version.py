"""Which aws plugin the double stands in for."""

VERSION = "7.51.1"
"""The version of the aws plugin whose SDK the project uses (pyproject.toml, pulumi-aws)."""
