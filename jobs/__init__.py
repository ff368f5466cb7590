"""The daily side of a cluster: find it, submit a job, follow it, report. Importing this package loads nothing heavy."""
