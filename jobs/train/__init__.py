"""What runs on the cluster, and as well on one laptop: PPO and what it needs to be watched, kept and resumed."""
