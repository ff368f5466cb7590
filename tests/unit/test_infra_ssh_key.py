import subprocess
from pathlib import Path

import pytest
from infra_recording import PUBLIC_KEY

from contract.errors import ConfigError
from infra.ssh_key import public_key

RSA = "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAgQ=="
ECDSA = "ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTY="


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / ".ssh").mkdir()
    return tmp_path


def put(home: Path, name: str, line: str) -> Path:
    path = home / ".ssh" / f"{name}.pub"
    path.write_text(f"{line} someone@somewhere\n")
    return path.with_suffix("")


def test_the_named_key_comes_first_and_loses_its_comment(home: Path) -> None:
    put(home, "id_ed25519", RSA)
    named = put(home, "mine", PUBLIC_KEY)
    assert public_key({"RAYRIG_SSH_KEY": str(named)}, home=home) == PUBLIC_KEY


def test_a_named_key_that_is_not_there_says_how_to_make_its_public_half(home: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read the public key .*/gone\.pub") as caught:
        public_key({"RAYRIG_SSH_KEY": str(home / "gone")}, home=home)
    assert "ssh-keygen -y" in str(caught.value)


def test_a_named_key_of_a_kind_that_ec2_refuses_is_told(home: Path) -> None:
    named = put(home, "mine", ECDSA)
    with pytest.raises(ConfigError, match="the kinds that EC2 accepts"):
        public_key({"RAYRIG_SSH_KEY": str(named)}, home=home)


def test_ed25519_before_rsa_before_nothing(home: Path) -> None:
    put(home, "id_ecdsa", ECDSA)
    with pytest.raises(ConfigError, match=r"no SSH key.*id_ecdsa\.pub.*ssh-keygen -t ed25519"):
        public_key({}, home=home)
    put(home, "id_a_rsa", RSA)
    assert public_key({}, home=home) == RSA
    put(home, "id_ed25519", PUBLIC_KEY)
    assert public_key({}, home=home) == PUBLIC_KEY


def test_without_any_key_the_error_names_ssh_keygen(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Next: ssh-keygen -t ed25519"):
        public_key({}, home=tmp_path)


def test_a_broken_key_is_no_key(home: Path) -> None:
    put(home, "id_ed25519", "ssh-ed25519 not*base64")
    put(home, "id_rsa", PUBLIC_KEY.replace("ssh-ed25519", "ssh-rsa"))
    with pytest.raises(ConfigError, match="no SSH key"):
        public_key({}, home=home)


def test_an_agents_key_comes_before_the_files(home: Path) -> None:
    key = home / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True, timeout=20)
    started = subprocess.run(
        ["ssh-agent", "-c", "-a", str(home / "agent")], check=True, capture_output=True, text=True, timeout=20
    )
    environment = {"SSH_AUTH_SOCK": str(home / "agent"), "PATH": "/usr/bin:/bin"}
    try:
        subprocess.run(["ssh-add", "-q", str(key)], env=environment, check=True, capture_output=True, timeout=20)
        put(home, "id_ed25519", PUBLIC_KEY)
        found = public_key(environment, home=home)
    finally:
        agent = started.stdout.split("SSH_AGENT_PID ")[1].split(";")[0]
        subprocess.run(
            ["ssh-agent", "-k"], env=environment | {"SSH_AGENT_PID": agent}, check=True, capture_output=True, timeout=20
        )
    assert found == key.with_suffix(".pub").read_text().rsplit(" ", 1)[0]


def test_an_agent_that_is_not_there_is_passed_over(home: Path) -> None:
    put(home, "id_ed25519", PUBLIC_KEY)
    assert public_key({"SSH_AUTH_SOCK": str(home / "gone"), "PATH": "/usr/bin:/bin"}, home=home) == PUBLIC_KEY
