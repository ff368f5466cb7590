"""The world: one daemon that holds moto, its nodes, their metadata service and a registry, and ends them all."""
