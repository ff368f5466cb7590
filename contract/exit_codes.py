"""The exit codes of every rayrig command, documented once, here."""

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes; a failed job exits with its driver's own code where that is known."""

    SUCCESS = 0
    """Done, and the job (if any) SUCCEEDED."""
    FAILURE = 1
    """Something failed; the message says what. Also a job that FAILED without a driver exit code."""
    USAGE = 2
    """The command line or the configuration is wrong; nothing was done."""
    LOST = 75
    """The job's state cannot be learned any more: the cluster was lost while following it."""
    STOPPED = 130
    """The job was STOPPED, or the person detached with Ctrl-C."""
