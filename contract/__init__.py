"""What the rooms say to each other: the inventory, errors, exit codes, names and tags."""
