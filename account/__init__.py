"""AWS outside Pulumi: who we are, what is offered and costs, what bears a cluster's tag."""
