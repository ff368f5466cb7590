"""The container images: what is inside them and the proof that it works. Importing this package loads nothing heavy."""
