"""Turns reachable machines into a proven Ray cluster: facts, steps, converge. Knows nothing of Pulumi."""
