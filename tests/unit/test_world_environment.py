import os
import subprocess
from pathlib import Path

import pytest
import requests

from rehearsal.nodes.instances import Cloud
from rehearsal.world.environment import daemon_environment, exports, process_environment, pulumi_environment
from rehearsal.world.places import places
from rehearsal.world.record import World


def world() -> World:
    return World(
        world_id="w1",
        pid=1,
        account_id="000000000001",
        region="eu-west-1",
        endpoint_url="http://127.0.0.1:1",
        engine_bin="/opt/engine's bin",
    )


@pytest.fixture
def person(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "AWS_PROFILE": "production",
        "AWS_SESSION_TOKEN": "theirs",
        "AWS_ENDPOINT_URL_S3": "https://elsewhere",
        "AWS_ACCESS_KEY_ID": "THEIRS",
        "PULUMI_ACCESS_TOKEN": "theirs",
        "PATH": "/usr/bin:/bin",
    }.items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("person")
def test_a_shell_that_evaluates_it_sees_no_setting_of_the_person(tmp_path: Path):
    place = places(tmp_path / "with blank's")
    script = 'eval "$1"; exec env -0'
    done = subprocess.run(
        ["sh", "-c", script, "sh", exports(place, world())], capture_output=True, text=True, check=True, timeout=20
    )
    found = dict(entry.split("=", 1) for entry in done.stdout.split("\0") if entry)
    assert not {"AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL_S3", "PULUMI_ACCESS_TOKEN"} & found.keys()
    assert "theirs" not in done.stdout.lower()
    assert found["AWS_ENDPOINT_URL"] == "http://127.0.0.1:1"
    assert found["RAYRIG_SSH_KEY"] == str(place.ssh_key)
    first, second, *_ = found["PATH"].split(os.pathsep)
    assert (Path(first).name, second) == ("bin", "/opt/engine's bin")
    assert (Path(first) / "python").exists()
    assert found["PATH"].endswith("/usr/bin:/bin")


@pytest.mark.usefixtures("person")
def test_pulumi_commands_of_ours_see_no_setting_of_the_person_either(tmp_path: Path):
    env = pulumi_environment(places(tmp_path), "/opt/engine")
    assert env["PULUMI_BACKEND_URL"] == f"file://{tmp_path}/state"
    assert not {"AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_ENDPOINT_URL_S3", "PULUMI_ACCESS_TOKEN"} & env.keys()


@pytest.mark.usefixtures("person")
def test_entered_twice_it_changes_nothing_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    place = places(tmp_path)
    once = pulumi_environment(place, "/opt/engine")
    monkeypatch.setenv("PATH", once["PATH"])
    assert pulumi_environment(place, "/opt/engine")["PATH"] == once["PATH"]


def test_a_world_elsewhere_has_a_stack_of_its_own(tmp_path: Path):
    assert places().stack == "rehearsal"
    other = places(tmp_path).stack
    assert other.startswith("rehearsal-")
    assert other != places(tmp_path / "b").stack


@pytest.mark.usefixtures("person")
def test_the_daemon_runs_whatever_profile_and_proxy_the_person_has(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    env = daemon_environment()
    assert not [name for name in env if name.startswith(("AWS_", "PULUMI_"))]
    for name in set(os.environ) - set(env):
        monkeypatch.delenv(name)
    monkeypatch.setenv("NO_PROXY", env["NO_PROXY"])
    Cloud(endpoint_url="http://127.0.0.1:1", region="eu-west-1")  # with AWS_PROFILE=production: ProfileNotFound
    assert requests.utils.get_environ_proxies("http://198.18.77.1:4000") == {}


def test_the_worlds_aws_is_asked_past_the_persons_proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setenv("NO_PROXY", "internal.example")
    env = process_environment(places(tmp_path), world())
    assert env["NO_PROXY"] == env["no_proxy"] == "internal.example,127.0.0.1,localhost"
