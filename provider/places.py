"""Where the plugin keeps what it writes on this machine."""

from pathlib import Path

PROJECT_FILE = "Pulumi.yaml"


def project_folder(start: Path) -> Path:
    """The nearest folder from `start` upwards that holds Pulumi.yaml, else the one this code lies in."""
    for folder in (start, *start.parents):
        if (folder / PROJECT_FILE).is_file():
            return folder
    return Path(__file__).resolve().parent.parent


def receipts_folder() -> Path:
    """Where receipts are kept for the person, whether or not a bucket keeps them too."""
    return project_folder(Path.cwd()) / ".rayrig" / "receipts"


def log_file() -> Path:
    """Where the plugin writes what is of no use in an error message: tracebacks."""
    return project_folder(Path.cwd()) / ".rayrig" / "logs" / "provider.log"
