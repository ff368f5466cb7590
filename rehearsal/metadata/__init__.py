"""The instance metadata service of the nodes, at 169.254.169.254 as they see it."""
