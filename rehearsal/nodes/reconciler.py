"""Keeps container nodes equal to moto's instances, whoever launched, stopped or ended them."""

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from botocore.exceptions import BotoCoreError, ClientError
from docker.errors import DockerException
from requests.exceptions import RequestException

from contract.errors import RayrigError
from rehearsal.nodes.changes import RequestWatch
from rehearsal.nodes.containers import NodeContainers
from rehearsal.nodes.decisions import KILLED_EXIT_CODE, Action, Machine, decide
from rehearsal.nodes.firewall import Surroundings, members_of, node_rules
from rehearsal.nodes.instances import UP, Cloud, Instance

POLL_SECONDS = 0.1
"""How often moto's request log is looked at."""
LOOK_SECONDS = 0.7
"""How often moto and Docker are asked when nothing is known to have changed: a node may have ended by itself."""
RETRY_SECONDS = 1.0
"""How long a node whose last action failed is left alone."""
STILL_SECONDS = 1.5
"""How long a machine must have stood still to count as powered off: `docker restart` passes through the same state."""
PARALLEL_ACTIONS = 16
FAILURES = (BotoCoreError, ClientError, DockerException, RequestException, RayrigError, OSError)
"""How moto, Docker and the disk fail; anything else is a bug and ends the reconciler, which the status then says."""

log = logging.getLogger("rehearsal.nodes")


@dataclass(frozen=True, kw_only=True)
class Sight:
    """One look at one node: what moto says, what Docker says, and the rules that should hold."""

    instance_id: str
    instance: Instance | None
    machine: Machine | None
    rules: str


@dataclass(kw_only=True)
class _Node:
    """What is remembered of one node between looks."""

    busy: Future[None] | None = None
    reboot: bool = False
    rules: str | None = field(default=None, metadata={"doc": "those in force"})
    stopped_by_cloud: bool = False
    state: str = ""
    problem: str | None = None
    retry_at: float = 0.0
    still_since: float | None = None

    def is_busy(self) -> bool:
        """Whether something is being done to it; what went wrong unforeseen is raised here, once."""
        if self.busy is None:
            return False
        if not self.busy.done():
            return True
        done, self.busy = self.busy, None
        done.result()
        return False


class Reconciler:
    """One loop that looks and decides, and a pool that acts.

    Args:
        cloud: where instances and rules are read.
        requests: tells that moto may have changed.
        containers: the nodes.
        around: what the lab has around every node.
        power_off: tells moto that an instance has powered itself off.
        changed: called when `states` or `problems` may read differently.
    """

    def __init__(
        self,
        *,
        cloud: Cloud,
        requests: RequestWatch,
        containers: NodeContainers,
        around: Surroundings,
        power_off: Callable[[str], None],
        changed: Callable[[], None],
    ) -> None:
        self._cloud = cloud
        self._requests = requests
        self._containers = containers
        self._around = around
        self._power_off = power_off
        self._changed = changed
        self._nodes: dict[str, _Node] = {}
        self._loop_problem: str | None = None
        self._ending = threading.Event()
        self._wake = threading.Event()
        self._pool = ThreadPoolExecutor(max_workers=PARALLEL_ACTIONS, thread_name_prefix="node")
        self._thread = threading.Thread(target=self._run, name="reconciler")

    def start(self) -> None:
        """Begins to follow moto."""
        self._thread.start()

    def stop(self) -> None:
        """Ends deciding and waits for what is in progress."""
        self._ending.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(timeout=30)
        self._pool.shutdown(wait=True, cancel_futures=True)

    @property
    def states(self) -> dict[str, str]:
        """What each instance's machine does: starting, up, dead, stopped or ending."""
        return {instance_id: node.state for instance_id, node in sorted(self._nodes.copy().items())}

    @property
    def problems(self) -> dict[str, str]:
        """What went wrong and has not been put right, by instance; `reconciler` for the loop itself."""
        found = {instance_id: node.problem for instance_id, node in self._nodes.copy().items() if node.problem}
        return found | ({"reconciler": self._loop_problem} if self._loop_problem else {})

    def _run(self) -> None:
        looked = 0.0
        while not self._ending.is_set():
            self._wake.wait(POLL_SECONDS)
            changes = self._requests.read()
            for instance_id in changes.reboots:
                self._nodes.setdefault(instance_id, _Node()).reboot = True
            if changes.any or self._wake.is_set() or time.monotonic() - looked >= LOOK_SECONDS:
                self._wake.clear()
                looked = time.monotonic()
                self._look_and_follow()

    def _look_and_follow(self) -> None:
        problem = None
        try:
            for sight in self._look():
                self._follow(sight, self._nodes.setdefault(sight.instance_id, _Node()))
        except FAILURES as error:
            problem = f"{type(error).__name__}: {error}"
        if problem != self._loop_problem:
            self._loop_problem = problem
            log.log(logging.ERROR if problem else logging.INFO, "reconciler: %s", problem or "well again")
            self._changed()

    def _look(self) -> list[Sight]:
        # First of all: what is being changed now would be seen half old and half new.
        busy = {instance_id for instance_id, node in self._nodes.items() if node.is_busy()}
        machines = self._containers.machines()
        instances = self._cloud.instances()
        groups = self._cloud.security_groups(g for i in instances.values() for g in i.group_ids)
        members = members_of(instances.values())
        for instance_id in self._nodes.keys() - instances.keys() - machines.keys() - busy:
            del self._nodes[instance_id]
            self._changed()
        return [
            Sight(
                instance_id=instance_id,
                instance=instances.get(instance_id),
                machine=machines.get(instance_id),
                rules=node_rules(i, groups, members, self._around) if (i := instances.get(instance_id)) else "",
            )
            for instance_id in sorted({*instances, *machines} - busy)
        ]

    def _follow(self, sight: Sight, node: _Node) -> None:
        if time.monotonic() < node.retry_at:
            return
        instance, machine = sight.instance, sight.machine
        if instance and instance.state not in UP and not (machine and machine.running):
            node.stopped_by_cloud = True
        action = decide(instance, machine, stopped_by_cloud=node.stopped_by_cloud, reboot=node.reboot)
        self._show(sight.instance_id, node, _state(action, instance, machine))
        if action is not Action.REPORT_POWER_OFF:
            node.still_since = None
        elif node.still_since is None or time.monotonic() - node.still_since < STILL_SECONDS:
            node.still_since = node.still_since or time.monotonic()
            return
        if action is None and machine and machine.running and instance and node.rules != sight.rules:
            action = Action.ENFORCE
        if action is not None:
            node.busy = self._pool.submit(self._act, action, sight, node)
            node.busy.add_done_callback(lambda _: self._wake.set())

    def _show(self, instance_id: str, node: _Node, state: str) -> None:
        if node.state == state:
            return
        node.state = state
        log.info("%s: %s", instance_id, state)
        self._changed()

    def _act(self, action: Action, sight: Sight, node: _Node) -> None:
        started = time.monotonic()
        try:
            self._carry_out(action, sight, node)
        except FAILURES as error:
            node.retry_at = time.monotonic() + RETRY_SECONDS
            problem = f"cannot {action}: {error}"
            if node.problem != problem:
                node.problem = problem
                log.error("%s: %s", sight.instance_id, problem)  # noqa: TRY400 - tried again, and shown in the status
                self._changed()
        else:
            log.info("%s: %s took %.2f s", sight.instance_id, action, time.monotonic() - started)
            if node.problem:
                node.problem = None
                self._changed()

    def _carry_out(self, action: Action, sight: Sight, node: _Node) -> None:
        match action, sight.instance, sight.machine:
            case Action.CREATE, Instance() as instance, _:
                self._containers.create(instance, sight.rules)
                node.rules = sight.rules
            case Action.START, Instance() as instance, Machine() as machine:
                self._containers.write_rules(instance, sight.rules)
                self._containers.start(machine.container_id)
                node.rules, node.stopped_by_cloud, node.reboot = sight.rules, False, False
            case Action.REBOOT, Instance() as instance, Machine() as machine:
                node.reboot = False
                self._containers.write_rules(instance, sight.rules)
                self._containers.reboot(machine.container_id)
                node.rules = sight.rules
            case Action.ENFORCE, Instance() as instance, Machine() as machine:
                self._containers.write_rules(instance, sight.rules)
                self._containers.apply_rules(machine.container_id)
                node.rules = sight.rules
            case Action.STOP, _, Machine() as machine:
                node.stopped_by_cloud = True
                self._containers.stop(machine.container_id)
            case Action.REPORT_POWER_OFF, _, _:
                self._power_off(sight.instance_id)
            case Action.REMOVE, _, _:
                self._containers.remove(sight.instance_id)
            case _:
                raise AssertionError(f"{action} without what it needs")


def _state(action: Action | None, instance: Instance | None, machine: Machine | None) -> str:
    if action in {Action.CREATE, Action.START, Action.REBOOT}:
        return "starting"
    if instance is None or action is Action.REPORT_POWER_OFF:
        return "ending"
    if machine is None or not machine.running:
        dead = machine is not None and machine.exit_code == KILLED_EXIT_CODE and instance.state in UP
        return "dead" if dead else "stopped"
    return "up"
