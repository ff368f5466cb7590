"""Where the engine looks for the double."""

from pathlib import Path

from rehearsal.double.version import VERSION

EXECUTABLE = Path(__file__).resolve().parents[1] / "bin" / "pulumi-resource-aws"


def install(pulumi_home: Path) -> Path:
    """Makes the double the aws plugin of one PULUMI_HOME, by a link; returns the plugin's folder.

    An engine that finds a plugin on PATH instead warns at every command; one that it finds here it takes as its own.
    """
    folder = pulumi_home / "plugins" / f"resource-aws-v{VERSION}"
    folder.mkdir(parents=True, exist_ok=True)
    link = folder / EXECUTABLE.name
    if not link.exists():
        link.unlink(missing_ok=True)
        link.symlink_to(EXECUTABLE)
    return folder
