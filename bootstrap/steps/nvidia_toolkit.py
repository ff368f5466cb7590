"""Step nvidia_toolkit: containers see the GPUs. Only on nodes whose facts show a GPU.

The four packages stand at one version and are held: an upgrade in the night takes the GPUs from running containers.
Docker is restarted only when its settings really changed.
"""

import shlex
import time
from dataclasses import dataclass

from bootstrap.facts import NodeFacts, read_facts
from bootstrap.progress import NodeLog, step_error
from bootstrap.steps.docker import APT_IDLE_SECONDS, APT_SECONDS, apt_get
from remote import CommandError, Connection

STEP = "nvidia_toolkit"
PACKAGES = (
    "nvidia-container-toolkit",
    "nvidia-container-toolkit-base",
    "libnvidia-container-tools",
    "libnvidia-container1",
)
KEYRING = "/usr/share/keyrings/rayrig-nvidia-toolkit.gpg"
SOURCE_LIST = "/etc/apt/sources.list.d/rayrig-nvidia-toolkit.list"
RUNTIME = "nvidia"

_CONFIGURE = """
set -eu
before=$(sha256sum /etc/docker/daemon.json 2>/dev/null || true)
nvidia-ctk runtime configure --runtime=docker >&2
after=$(sha256sum /etc/docker/daemon.json)
if [ "$before" != "$after" ]; then systemctl restart docker; echo restarted; fi
"""


@dataclass(frozen=True, kw_only=True)
class ToolkitSource:
    """A signed apt source of the toolkit.

    Attributes:
        line: what follows `deb [signed-by=…]`: address, suite, components.
        key: the public key that signs it, ASCII-armoured.
        version: the one version of all four packages.
    """

    line: str
    key: str
    version: str


@dataclass(frozen=True, kw_only=True)
class ToolkitPlan:
    """What must be done; empty when nothing."""

    install: tuple[str, ...] = ()
    hold: tuple[str, ...] = ()
    configure: bool = False

    @property
    def empty(self) -> bool:
        """Whether the toolkit is as wanted."""
        return not (self.install or self.hold or self.configure)


def plan(facts: NodeFacts, version: str | None) -> ToolkitPlan:
    """Compares the node with what is wanted.

    Args:
        facts: of the node.
        version: wanted of all four packages; None accepts what the machine image brought, if it is one version.
    """
    if not facts.gpus.any:
        return ToolkitPlan()
    found = facts.toolkit.packages
    wanted = version or next(iter(found.values()), "")
    wrong = tuple(name for name in PACKAGES if found.get(name) != wanted)
    # All four or none: with `=` dependencies between them, a single one cannot be moved.
    install = tuple(f"{name}={wanted}" if wanted else name for name in PACKAGES) if wrong else ()
    hold = tuple(name for name in PACKAGES if install or name not in facts.toolkit.held)
    configured = RUNTIME in facts.docker.runtimes or facts.toolkit.runtime_configured
    return ToolkitPlan(install=install, hold=hold, configure=bool(install) or not configured)


def ensure_toolkit(
    connection: Connection, log: NodeLog, facts: NodeFacts, *, image: str, source: ToolkitSource | None = None
) -> NodeFacts:
    """Makes sure that containers can be given the node's GPUs.

    Returns:
        The facts, read again when something was changed.

    Raises:
        StepError: the packages are missing and there is no source, or a command failed.
    """
    if not facts.gpus.any:
        return facts
    started = time.monotonic()
    needed = plan(facts, source.version if source else None)
    if needed.empty:
        log.add(STEP, changed=False, why=f"toolkit {facts.toolkit.packages[PACKAGES[0]]} ready", started=started)
        return facts
    if needed.install and source is None:
        missing = [name for name in PACKAGES if name not in facts.toolkit.packages]
        raise step_error(
            log.node,
            STEP,
            "the NVIDIA container toolkit is missing or in mixed versions",
            why=f"missing: {', '.join(missing) or 'none'}; found: {facts.toolkit.packages or 'none'}",
            next_step="use a machine image that carries driver and toolkit, such as AWS's Deep Learning Base AMI",
        )
    try:
        _apply(connection, log, needed, source)
    except CommandError as error:
        raise step_error(
            log.node,
            STEP,
            "the toolkit could not be set up",
            why=f"{error.what}: {error.why}",
            next_step="sudo apt-get install the four packages by hand to see more, or use an AMI that carries them",
        ) from error
    after = read_facts(connection, image=image)
    left = plan(after, source.version if source else None)
    if not left.empty:
        raise step_error(
            log.node,
            STEP,
            "the toolkit is still not as wanted",
            why=f"packages {after.toolkit.packages}, held {after.toolkit.held}, runtimes {after.docker.runtimes}",
            next_step="cat /etc/docker/daemon.json on the node",
        )
    log.add(STEP, changed=True, why="toolkit installed, held and configured", started=started)
    return after


def _apply(connection: Connection, log: NodeLog, needed: ToolkitPlan, source: ToolkitSource | None) -> None:
    if needed.install and source is not None:
        log.say(STEP, f"installing toolkit {source.version}")
        connection.put_text(source.key, f"{KEYRING}.asc", mode="0644", owner="root:root")
        connection.put_text(
            f"deb [signed-by={KEYRING}.asc] {source.line}\n", SOURCE_LIST, mode="0644", owner="root:root"
        )
        for argv in install_commands(needed):
            connection.run(argv, sudo=True, timeout_seconds=APT_SECONDS, idle_seconds=APT_IDLE_SECONDS)
    if needed.hold:
        connection.run(["apt-mark", "hold", *needed.hold], sudo=True, timeout_seconds=60)
    if needed.configure:
        done = connection.run(["sh", "-c", _CONFIGURE], sudo=True, timeout_seconds=120)
        if "restarted" in done.stdout:
            log.say(STEP, "Docker's settings changed, restarted")


def install_commands(needed: ToolkitPlan) -> list[list[str]]:
    """Apt's part, in order; the update reads only our own source."""
    update = [
        f"--option=Dir::Etc::sourcelist={shlex.quote(SOURCE_LIST)}",
        "--option=Dir::Etc::sourceparts=-",
        "--option=APT::Get::List-Cleanup=0",
    ]
    return [
        apt_get(*update, "update"),
        apt_get("install", "--yes", "--no-install-recommends", "--allow-change-held-packages", *needed.install),
    ]


def check_gpus(log: NodeLog, facts: NodeFacts, *, expected: int) -> None:
    """Compares bus, driver and instance type.

    Raises:
        StepError: they differ; it names the layer.
    """
    seen = {"the PCI bus": facts.gpus.on_bus, "nvidia-smi": len(facts.gpus.names)}
    wrong = {layer: count for layer, count in seen.items() if count != expected}
    if not wrong:
        return
    raise step_error(
        log.node,
        STEP,
        f"GPUs missing or unexpected: the instance type has {expected}",
        why=", ".join(f"{layer} shows {count}" for layer, count in wrong.items()),
        next_step="nvidia-smi and sudo dmesg | grep -i nvrm, on the node; a broken GPU needs another instance",
    )
