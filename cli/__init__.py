"""The `rayrig` command: the verbs of all rooms under one roof."""
