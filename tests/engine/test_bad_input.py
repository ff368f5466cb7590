"""The real program under the real CLI: bad input is one readable message, and nothing is made."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from engine_aws import REGION

from rehearsal.aws.server import Server
from rehearsal.ledger import snapshot

PROJECT = Path(__file__).resolve().parents[2]
COMMAND_SECONDS = 60
STACK = "bad-input"
DIGEST = "sha256:" + "0" * 64
GOOD: Mapping[str, object] = {
    "aws:region": REGION,
    "rayrig:accessCidr": "203.0.113.7/32",
    "rayrig:image": f"registry.example/ray@{DIGEST}",
    "rayrig:headType": "m7i.large",
    "rayrig:workerType": "m7i.large",
    "rayrig:workers": 1,
}
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "person", "AWS_SECRET_ACCESS_KEY": "person"}
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f person"
UGLY = ("Traceback", 'File "', "rpc error", "RunError", "exited with non-zero exit code")


@dataclass(kw_only=True)
class Checkout:
    """Pulumi.yaml and the rooms it names, with a stack's configuration of its own."""

    folder: Path
    cli: Path
    home: Path
    world: Server

    def environment(self) -> dict[str, str]:
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("AWS_", "PULUMI_", "SSH_", "RAYRIG_"))
        }
        return kept | {
            "HOME": str(self.folder),
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), str(self.cli), os.environ["PATH"]]),
            "PULUMI_HOME": str(self.home),
            "PULUMI_BACKEND_URL": f"file://{self.folder / 'state'}",
            "PULUMI_CONFIG_PASSPHRASE": "bad input",
            "PULUMI_SKIP_UPDATE_CHECK": "true",
            "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_ENDPOINT_URL": self.world.url,
            "RAYRIG_SSH_KEY": str(self.folder / "key"),
            **CREDENTIALS,
        }

    def configure(self, **values: object) -> None:
        """GOOD with these keys changed; None leaves one out."""
        config = {**GOOD, **{f"rayrig:{key}": value for key, value in values.items()}}
        kept = {key: value for key, value in config.items() if value is not None}
        (self.folder / f"Pulumi.{STACK}.yaml").write_text(yaml.safe_dump({"config": kept}))

    def run(self, *argv: str, without: tuple[str, ...] = ()) -> tuple[int, str]:
        environment = {name: value for name, value in self.environment().items() if name not in without}
        done = subprocess.run(
            ["pulumi", *argv, "--non-interactive", "--color", "never"],
            cwd=self.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )
        return done.returncode, done.stdout

    def everything(self) -> frozenset[str]:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in CREDENTIALS.items():
                patch.setenv(name, value)
            return snapshot(endpoint_url=self.world.url, region=REGION)

    def refused(self, *argv: str, without: tuple[str, ...] = ()) -> str:
        """The one message of a command that must fail before anything is made."""
        before = self.everything()
        code, text = self.run(*argv, without=without)
        assert code != 0, text
        assert not [word for word in UGLY if word in text], text
        assert self.everything() == before
        messages = {line.strip() for line in text.splitlines() if re.match(r"\s*error: ", line)}
        assert len(messages) == 1, text
        (message,) = messages
        return message


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory, pulumi_folder: Path, pulumi_home: Path, world: Server):
    """The project itself in a folder of its own, so that no test writes beside Pulumi.yaml."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in ("Pulumi.yaml", "infra", "provider"):
        (folder / name).symlink_to(PROJECT / name)
    (folder / ".venv").symlink_to(sys.prefix)
    (folder / "state").mkdir()
    (folder / "key.pub").write_text(KEY)
    made = Checkout(folder=folder, cli=pulumi_folder, home=pulumi_home, world=world)
    code, text = made.run("stack", "init", STACK)
    assert code == 0, text
    return made


def test_good_input_is_previewed_without_a_word_of_error(checkout: Checkout):
    checkout.configure()
    before = checkout.everything()
    code, text = checkout.run("preview")
    assert code == 0, text
    assert "error" not in text
    assert " to create" in text
    assert checkout.everything() == before


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("accessCidr", None, r"rayrig:accessCidr: is not set: .*Next: pulumi config set accessCidr "),
        (
            "accessCidr",
            "0.0.0.0/0",
            r"rayrig:accessCidr: 0\.0\.0\.0/0 opens SSH to the world.*Next: pulumi config set accessCidr ",
        ),
        (
            "worker",
            3,
            r"rayrig:worker: there is no such key.*nearest is workers.*Next: .*pulumi config set workers ",
        ),
        ("workers", -1, r"rayrig:workers: '-1' is wrong.*Next: pulumi config set workers 2"),
        ("image", "registry.example/ray:latest", r"rayrig:image: .*by tag.*Next: pulumi config set image "),
        ("image", "registry.example/ray@sha256:abc", r"rayrig:image: .*3 seen.*Next: pulumi config set image "),
    ],
    ids=["no accessCidr", "open accessCidr", "unknown key", "workers -1", "image by tag", "short digest"],
)
def test_a_bad_key_is_one_message_with_key_and_next_step(checkout: Checkout, key: str, value: object, says: str):
    checkout.configure(**{key: value})
    assert re.match(f"error: {says}", checkout.refused("preview"))


def test_up_says_the_same_and_makes_nothing(checkout: Checkout):
    checkout.configure(accessCidr=None)
    assert "rayrig:accessCidr: is not set" in checkout.refused("up", "--yes")


def test_no_credentials_are_told_once(checkout: Checkout):
    checkout.configure()
    message = checkout.refused("preview", without=tuple(CREDENTIALS))
    assert "credentials" in message
    assert "Next: " in message


def test_no_ssh_key_is_told_once(checkout: Checkout):
    checkout.configure()
    message = checkout.refused("preview", without=("RAYRIG_SSH_KEY",))
    assert "no SSH key" in message
    assert "Next: ssh-keygen -t ed25519" in message
