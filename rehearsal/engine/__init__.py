"""Getting the Pulumi engine onto this machine: found, installed, or built with Go, and cached."""
