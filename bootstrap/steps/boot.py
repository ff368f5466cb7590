"""Step boot: the machine's own first-boot work (cloud-init) is over, without errors."""

import time

from bootstrap.on_node import run_program
from bootstrap.progress import NodeLog, StepResult, step_error
from remote import Connection

STEP = "boot"
BOOT_SECONDS = 300.0
"""First boot of a GPU image, packages included; container nodes take 2-6 s."""
LOOK_SECONDS = 5.0


def wait_for_boot(connection: Connection, log: NodeLog, *, timeout_seconds: float = BOOT_SECONDS) -> StepResult:
    """Waits until cloud-init has finished.

    Raises:
        StepError: cloud-init reports errors, or is not finished in time.
    """
    started = time.monotonic()
    stage: object = None
    while True:
        left = timeout_seconds - (time.monotonic() - started)
        state = run_program(
            connection, "boot", timeout_seconds=LOOK_SECONDS + 20, wait_seconds=max(0.0, min(LOOK_SECONDS, left))
        )
        if not state["expected"]:
            return log.add(STEP, changed=False, why="no cloud-init on this machine", started=started)
        if state["finished"]:
            break
        if left <= 0:
            raise step_error(
                log.node,
                STEP,
                f"cloud-init is not finished after {timeout_seconds:g} s",
                why=f"It is in its stage {state['stage'] or 'unknown'}",
                next_step="sudo cat /var/log/cloud-init-output.log on the node",
            )
        if state["stage"] != stage:
            stage = state["stage"]
            log.say(STEP, f"cloud-init runs ({stage or 'starting'})")
    errors = _texts(state["errors"])
    if errors:
        raise step_error(
            log.node,
            STEP,
            "cloud-init failed",
            why="\n".join([*errors, *_texts(state["log_tail"])]),
            next_step="sudo cat /var/log/cloud-init-output.log on the node, then replace it: pulumi up",
        )
    for warning in _texts(state["warnings"]):
        log.say(STEP, f"cloud-init warns: {warning}")
    return log.add(STEP, changed=False, why="booted, cloud-init finished", started=started)


def _texts(value: object) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list) else []
