"""A person's shell inside the world: the literal commands, and a look at what they brought about."""

import json
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from in_lab import LabWorld, until

from contract.inventory import Inventory, parse_inventory
from contract.names import RAY_CONTAINER
from rehearsal.ledger import snapshot
from rehearsal.world.environment import process_environment
from rehearsal.world.places import PROJECT

SLACK = 3
"""How much longer than on two idle cores a command may take where other suites run beside this one."""
COMMAND_SECONDS = 240.0
GRACE_SECONDS = 30.0
UGLY = ("Traceback", 'File "', "rpc error", "panic:", "exited prematurely")
TIMED_OUT = 7
TRY = f"""
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=0.5).close()
except TimeoutError:
    sys.exit({TIMED_OUT})
"""


@dataclass(frozen=True, kw_only=True)
class Done:
    """How a command ended."""

    command: str
    code: int
    output: str
    shown: str
    seconds: float

    @property
    def text(self) -> str:
        """All that a person sees."""
        return self.output + self.shown

    @property
    def messages(self) -> list[str]:
        """Each error once; the engine lists those of a failed update as points."""
        return list(dict.fromkeys(re.findall(r"^\s*(?:error: |\* )(.+[^:])$", self.text, re.MULTILINE)))

    def expect(self, code: int = 0) -> "Done":
        """Itself, when it ended so and readably."""
        assert self.code == code, f"`{self.command}` ended with {self.code}:\n{self.text}"
        assert not [word for word in UGLY if word in self.text], self.text
        return self

    def within(self, seconds: float) -> "Done":
        """Itself, when it was as quick as on an idle machine, give or take SLACK."""
        assert self.seconds < SLACK * seconds, f"`{self.command}` took {self.seconds:.1f} s:\n{self.text}"
        return self


@dataclass(kw_only=True)
class Rig:
    """A stack of its own in the world of all lab tests."""

    lab: LabWorld
    env: dict[str, str]

    def run(self, *argv: str, seconds: float = COMMAND_SECONDS) -> Done:
        """Runs a command in the checkout; one that is late gets Ctrl-C, then its whole group is ended."""
        started = time.monotonic()
        process = subprocess.Popen(
            argv,
            cwd=PROJECT,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        command = " ".join(argv)
        try:
            output, shown = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            try:
                output, shown = process.communicate(timeout=GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                output, shown = process.communicate(timeout=GRACE_SECONDS)
            pytest.fail(f"`{command}` did not end within {seconds:.0f} s:\n{output}{shown}")
        done = Done(
            command=command, code=process.returncode, output=output, shown=shown, seconds=time.monotonic() - started
        )
        print(f"{command}: {done.seconds:.1f} s, exit code {done.code}")
        return done

    def up(self) -> Done:
        """`pulumi up --yes`."""
        return self.run("pulumi", "up", "--yes")

    def destroy(self) -> Done:
        """`pulumi destroy --yes`."""
        return self.run("pulumi", "destroy", "--yes")

    def configure(self, key: str, value: object) -> None:
        """`pulumi config set`."""
        self.run("pulumi", "config", "set", key, str(value)).expect()

    def changes(self) -> dict[str, int]:
        """What the last update did to resources, by kind of change, "same" left out."""
        history = json.loads(
            self.run("pulumi", "stack", "history", "--json", "--page-size", "1", "--page", "1").expect().output
        )
        counts: dict[str, int] = history[0].get("resourceChanges") or {}
        return {kind: count for kind, count in counts.items() if kind != "same"}

    def inventory(self) -> Inventory:
        """The stack's output `cluster`."""
        done = self.run("pulumi", "stack", "output", "cluster", "--json").expect()
        return parse_inventory(done.output, source="stack output `cluster`")

    def resources(self) -> list[str]:
        """URNs in the stack."""
        deployment = json.loads(self.run("pulumi", "stack", "export").expect().output)["deployment"]
        return [each["urn"] for each in deployment.get("resources") or []]

    def objects(self, uri: str) -> list[str]:
        """Keys of the objects under an s3:// address, relative to it."""
        bucket, _, prefix = uri.removeprefix("s3://").partition("/")
        found = self.lab.client("s3").list_objects_v2(Bucket=bucket, Prefix=f"{prefix}/").get("Contents", [])
        return [each["Key"].removeprefix(f"{prefix}/") for each in found]

    def object(self, uri: str) -> str:
        """The text of one object."""
        bucket, _, key = uri.removeprefix("s3://").partition("/")
        text: str = self.lab.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read().decode()
        return text

    def proven(self, inventory: Inventory) -> set[str]:
        """Names of the nodes in the proof that lies in the bucket."""
        return set(json.loads(self.object(f"{inventory.storage.cluster_uri}/readiness.json"))["nodes"])

    def ray_containers(self, inventory: Inventory) -> dict[str, str]:
        """Of each node its Ray container's id and when it was started, asked on the node past SSH and firewall."""
        asked = ["docker", "inspect", "--format", "{{.Id}} {{.State.StartedAt}} {{.State.Status}}", RAY_CONTAINER]
        found = {node.name: self._answer(node.instance_id, asked) for node in inventory.nodes}
        assert all(text.endswith(" running") for text in found.values()), found
        return found

    def _answer(self, instance_id: str, argv: Sequence[str]) -> str:
        """A node's answer; asked again when Docker has lost the output of an exec that ended at once."""
        texts: list[str] = []

        def answered() -> bool:
            code, text = self.lab.on(instance_id, argv)
            assert code == 0, f"{instance_id}: {text}"
            texts.append(text)
            return bool(text)

        until(answered, seconds=5, what=f"{instance_id} answers {argv[0]}")
        return texts[-1]

    def snapshot(self) -> frozenset[str]:
        """Everything in the world's AWS."""
        with pytest.MonkeyPatch.context() as patch:
            for name, value in self.env.items():
                if name.startswith("AWS_"):
                    patch.setenv(name, value)
            return snapshot(endpoint_url=self.lab.world.endpoint_url, region=self.lab.world.region)

    def end_instances(self) -> None:
        """Ends what a failed test may have left, so that no other test meets it."""
        answer = self.lab.client("ec2").describe_instances(
            Filters=[
                {"Name": "tag:rayrig:stack", "Values": [self.lab.place.stack]},
                {"Name": "instance-state-name", "Values": ["pending", "running", "stopping", "stopped"]},
            ]
        )
        ids = [each["InstanceId"] for found in answer["Reservations"] for each in found["Instances"]]
        if ids:
            self.lab.terminate(*ids)


def rig_in(lab: LabWorld, pulumi_folder: Path) -> Rig:
    """The shell that `eval "$(python -m rehearsal env)"` gives, with the CLI that these tests use."""
    world = lab.world.model_copy(update={"engine_bin": str(pulumi_folder)})
    return Rig(lab=lab, env=process_environment(lab.place, world))


def opens_from_here(address: str, port: int) -> bool:
    """Whether the person's machine gets through; a refusal would be an answer, and is an error: groups drop."""
    try:
        socket.create_connection((address, port), timeout=0.5).close()
    except TimeoutError:
        return False
    return True


def opens_from_node(lab: LabWorld, instance_id: str, address: str, port: int) -> bool:
    """Whether a node gets through."""
    code, output = lab.on(instance_id, ["python3", "-c", TRY, address, str(port)])
    assert code in {0, TIMED_OUT}, output
    return code == 0


def comes(happens: object, what: str, *, seconds: float = 5) -> None:
    """Waits for what follows from a change and prints how long it took."""
    assert callable(happens)
    print(f"{what}: after {until(happens, seconds=seconds, what=what):.1f} s")
