"""The real engine against one AWS on loopback, without nodes: a world for the session, stacks for tests."""

import json
import os
import re
import secrets
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from engine_aws import REGION, client_of

from rehearsal.aws.server import Server, serve
from rehearsal.double.plugin import install

OPERATION_SECONDS = 150.0
PASSPHRASE = "engine"
SUMMARY = re.compile(r"(\d+) (created|updated|replaced|deleted|unchanged)")


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """moto with the gap fillers, in this process."""
    with serve(
        host="127.0.0.1",
        port=0,
        world_id="engine",
        account_id=f"0000{secrets.randbelow(10**8):08d}",
        region=REGION,
        public_cidr="198.18.77.0/24",
        request_log=tmp_path_factory.mktemp("world") / "requests.jsonl",
    ) as server:
        yield server


@pytest.fixture(scope="session")
def ec2(world: Server):
    """EC2 as a person sees it beside Pulumi."""
    return client_of(world, "ec2")


@dataclass(frozen=True)
class Outcome:
    """What one pulumi command did."""

    code: int
    text: str

    @property
    def counts(self) -> dict[str, int]:
        """Resources by what happened to them, as the summary says."""
        summary = self.text.rpartition("Resources:")[2]
        return {what: int(number) for number, what in SUMMARY.findall(summary)}


@dataclass
class Stack:
    """A Pulumi project with one stack; the program reads `wanted.json`."""

    folder: Path
    environment: dict[str, str]
    wanted: dict = field(default_factory=dict)

    def run(self, *argv: str) -> Outcome:
        done = subprocess.run(
            ["pulumi", *argv, "--non-interactive", "--color", "never"],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=OPERATION_SECONDS,
            check=False,
        )
        return Outcome(done.returncode, done.stdout)

    def want(self, **wanted: object) -> None:
        self.wanted |= wanted
        (self.folder / "wanted.json").write_text(json.dumps(self.wanted))

    def up(self, **wanted: object) -> Outcome:
        self.want(**wanted)
        return self.run("up", "--yes", "--skip-preview")

    def destroy(self, *more: str) -> Outcome:
        return self.run("destroy", "--yes", "--skip-preview", *more)

    def export(self) -> dict:
        return json.loads(self.run("stack", "export").text)

    def put(self, deployment: dict) -> None:
        file = self.folder / "changed.json"
        file.write_text(json.dumps(deployment))
        assert self.run("stack", "import", "--file", str(file)).code == 0

    def resources(self) -> dict[str, dict]:
        found = self.export()["deployment"].get("resources", [])
        return {each["urn"].rpartition("::")[2]: each for each in found}


@pytest.fixture(scope="session")
def pulumi_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A PULUMI_HOME whose aws plugin is the double."""
    home = tmp_path_factory.mktemp("pulumi-home")
    install(home)
    return home


@pytest.fixture(scope="session")
def stack_of(world: Server, pulumi_folder: Path, pulumi_home: Path) -> Callable[[Path, str], Stack]:
    """Makes a stack in a folder from a program; one of the files in tests/engine/programs."""

    def make(folder: Path, program: str) -> Stack:
        (folder / "state").mkdir()
        shutil.copy(Path(__file__).parent / "programs" / program, folder / "__main__.py")
        venv = Path(sys.prefix)
        (folder / "Pulumi.yaml").write_text(
            f"name: engine\nruntime:\n  name: python\n  options:\n    toolchain: pip\n    virtualenv: {venv}\n"
            "options:\n  refresh: always\n"
        )
        environment = {
            "HOME": str(folder),
            "PATH": os.pathsep.join([str(pulumi_folder), str(venv / "bin"), os.environ["PATH"]]),
            "PULUMI_HOME": str(pulumi_home),
            "PULUMI_BACKEND_URL": f"file://{folder / 'state'}",
            "PULUMI_CONFIG_PASSPHRASE": PASSPHRASE,
            "PULUMI_SKIP_UPDATE_CHECK": "true",
            "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
            "AWS_ACCESS_KEY_ID": "rehearsal",
            "AWS_SECRET_ACCESS_KEY": "rehearsal",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_ENDPOINT_URL": world.url,
            "ENGINE_ACCOUNT": world.account_id,
        }
        stack = Stack(folder, environment)
        made = stack.run("stack", "init", "engine")
        assert made.code == 0, made.text
        return stack

    return make
