"""A throw-away Pulumi project over the real plugin and a real CLI, and the rehearsal's AWS to run it against."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3

ROOT = Path(__file__).resolve().parents[2]
REGION = "eu-west-1"
COMMAND_SECONDS = 60.0

PROGRAM = """
import json
import pathlib

import pulumi

MADE = {}


def resolve(value):
    if isinstance(value, dict) and "$ref" in value:
        name, _, key = value["$ref"].partition(".")
        return getattr(MADE[name], key)
    if isinstance(value, dict):
        return {key: resolve(item) for key, item in value.items()}
    if isinstance(value, list):
        return [resolve(item) for item in value]
    return value


for entry in json.loads(pathlib.Path("resources.json").read_text()):
    inputs = resolve(entry["inputs"])
    learned = {key: None for key in entry.get("outputs", [])}
    MADE[entry["name"]] = made = pulumi.CustomResource(entry["type"], entry["name"], {**inputs, **learned})
    for key in learned:
        value = pulumi.Output.from_input(getattr(made, key, None)) if hasattr(made, key) else None
        if value is not None:
            pulumi.export(f"{entry['name']}.{key}", value)
"""


@dataclass(frozen=True, kw_only=True)
class Aws:
    """A running rehearsal AWS."""

    url: str
    account_id: str

    @property
    def home(self) -> dict[str, Any]:
        return {"accountId": self.account_id, "region": REGION, "endpoint": {"kind": "rehearsal", "url": self.url}}

    def client(self, service: str) -> Any:
        return boto3.session.Session(aws_access_key_id="lab", aws_secret_access_key="lab").client(
            service, region_name=REGION, endpoint_url=self.url
        )


@contextmanager
def running_aws(account_id: str) -> Iterator[Aws]:
    argv = [sys.executable, "-m", "rehearsal.aws", "--account", account_id, "--region", REGION]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            started = json.loads(process.stdout.readline())
            yield Aws(url=started["endpointUrl"], account_id=started["accountId"])
        finally:
            process.terminate()
            process.wait(timeout=10)


@dataclass(kw_only=True)
class Project:
    """One project folder with a `file://` backend and one stack."""

    folder: Path
    cli: Path
    stack: str
    aws: Aws | None
    processes: list[subprocess.Popen[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        for name in ("state", "home", "program"):
            (self.folder / name).mkdir(exist_ok=True, parents=True)
        (self.folder / "Pulumi.yaml").write_text(
            json.dumps(
                {
                    "name": "rayrig",
                    "runtime": {"name": "python", "options": {"virtualenv": str(ROOT / ".venv")}},
                    "main": "program",
                    "options": {"refresh": "always"},
                    "plugins": {"providers": [{"name": "rayrig", "path": str(ROOT / "provider" / "plugin")}]},
                }
            )
        )
        (self.folder / "program" / "__main__.py").write_text(PROGRAM)
        (self.folder / "passphrase").write_text("test")
        if not list((self.folder / "state").glob(f".pulumi/stacks/*/{self.stack}.json")):
            done = self.pulumi("stack", "init", self.stack)
            assert done.returncode == 0, done.stdout

    def env(self) -> dict[str, str]:
        env = {key: value for key, value in os.environ.items() if not key.startswith(("AWS_", "PULUMI_"))}
        env |= {
            "PATH": f"{self.cli}:{env['PATH']}",
            "PULUMI_HOME": str(self.folder / "home"),
            "PULUMI_BACKEND_URL": f"file://{self.folder / 'state'}",
            "PULUMI_CONFIG_PASSPHRASE_FILE": str(self.folder / "passphrase"),
            "PULUMI_SKIP_UPDATE_CHECK": "true",
            "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
            "AWS_ACCESS_KEY_ID": "lab",
            "AWS_SECRET_ACCESS_KEY": "lab",
            "AWS_REGION": REGION,
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        }
        if self.aws is not None:
            env["AWS_ENDPOINT_URL"] = self.aws.url
        return env

    def resources(self, *entries: dict[str, Any]) -> None:
        (self.folder / "program" / "resources.json").write_text(json.dumps(entries))

    def pulumi(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.cli / "pulumi"), *arguments, "--non-interactive"],
            cwd=self.folder,
            env=self.env(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )

    def run(self, verb: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        yes = [] if verb == "preview" else ["--yes", "--skip-preview"]
        return self.pulumi(verb, "--stack", self.stack, *yes, *arguments)

    def interrupted(self, verb: str, *, when: str) -> tuple[int, str, float]:
        """Starts a command, sends SIGINT once `when` shows in its output; exit code, output, seconds from there."""
        argv = [str(self.cli / "pulumi"), verb, "--stack", self.stack, "--yes", "--skip-preview", "--non-interactive"]
        process = subprocess.Popen(
            argv,
            cwd=self.folder,
            env=self.env(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output = ""
            while when not in output:
                line = process.stdout.readline()
                assert line, f"{when!r} never showed:\n{output}"
                output += line
            sent = time.monotonic()
            os.killpg(process.pid, signal.SIGINT)  # what a terminal does on Ctrl-C
            rest, _ = process.communicate(timeout=COMMAND_SECONDS)
            return process.returncode, output + rest, time.monotonic() - sent
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(timeout=10)

    def export(self) -> dict[str, Any]:
        done = self.pulumi("stack", "export", "--stack", self.stack)
        assert done.returncode == 0, done.stdout
        return json.loads(done.stdout)["deployment"]

    def state_of(self, name: str) -> dict[str, Any] | None:
        found = [item for item in self.export().get("resources", []) if item["urn"].endswith(f"::{name}")]
        return found[0] if found else None

    def another(self, stack: str) -> "Project":
        return Project(folder=self.folder, cli=self.cli, stack=stack, aws=self.aws)
