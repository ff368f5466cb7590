"""What the images are made from: node options, first-boot configuration, locked Ray, pip settings, the code layer."""

import json
import os
import re
import shutil
import subprocess
import tarfile
from io import BytesIO
from pathlib import Path

import pytest
import yaml

from contract.errors import RayrigError
from contract.names import CONTAINER_UID
from rehearsal.images import node_run_options, ray, registry_container_spec, rootfs
from rehearsal.images.oci import Repository
from rehearsal.images.ray_push import code_layer
from rehearsal.images.registry import _free_port

ROOT = Path(__file__).parents[2]
RECIPES = ROOT / "rehearsal/images/recipes"
NODE_FILES = RECIPES / "node/files"
PIN = re.compile(r"^([a-z0-9._-]+)==([^ ;]+)")


def test_nodes_run_on_hosts_that_grant_neither_privilege_nor_memlock(tmp_path: Path) -> None:
    options = node_run_options(docker_root=tmp_path, metadata="10.77.0.1:8169")
    assert "privileged" not in options
    assert "ulimits" not in options
    assert not {"SYS_RESOURCE", "SYS_MODULE"} & set(options["cap_add"])
    assert options["volumes"][str(tmp_path)]["bind"] == "/var/lib/docker"
    assert options["environment"]["RAYRIG_LAB_METADATA"] == "10.77.0.1:8169"
    assert "RAYRIG_LAB_METADATA" not in node_run_options(docker_root=tmp_path, metadata=None)["environment"]


def test_cloud_init_asks_the_metadata_service_and_nobody_else() -> None:
    config = yaml.safe_load((NODE_FILES / "etc/cloud/cloud.cfg.d/90_rayrig_lab.cfg").read_text())
    assert config["datasource_list"] == ["Ec2"]
    assert config["datasource"]["Ec2"]["strict_id"] is False
    user = config["system_info"]["default_user"]
    assert user["name"] == "ubuntu"
    assert "docker" in user["groups"]
    assert user["sudo"] == ["ALL=(ALL) NOPASSWD:ALL"]
    assert "ssh" in config["cloud_init_modules"]
    assert "scripts-user" in config["cloud_final_modules"]


def test_docker_inside_takes_images_from_the_labs_addresses() -> None:
    daemon = json.loads((NODE_FILES / "etc/docker/daemon.json").read_text())
    assert {"10.0.0.0/8", "198.18.0.0/15"} <= set(daemon["insecure-registries"])
    assert daemon["log-opts"]["max-size"]


@pytest.mark.parametrize("script", sorted(RECIPES.rglob("*.sh")), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_recipe_scripts_are_plain_shell(script: Path) -> None:
    shell = shutil.which("dash") or "sh"
    done = subprocess.run([shell, "-n", str(script)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def _pins(name: str) -> dict[str, set[str]]:
    pins: dict[str, set[str]] = {}
    for line in (ROOT / "requirements" / name).read_text().splitlines():
        if match := PIN.match(line):
            pins.setdefault(match[1], set()).add(match[2])
    return pins


def test_image_runs_the_versions_that_clients_run_and_leaves_torch_to_debian() -> None:
    image, clients = _pins("lab-image.lock"), _pins("all.lock")
    assert image["ray"] == {"2.60.0"}
    assert "torch" not in image
    differing = {name for name in image.keys() & clients.keys() if not image[name] <= clients[name]}
    assert differing == {"sympy"}


def test_every_pin_of_the_image_is_hashed_and_names_no_index() -> None:
    text = (ROOT / "requirements/lab-image.lock").read_text()
    blocks = re.split(r"\n(?=[a-z0-9])", text.strip())
    assert len(blocks) == len(_pins("lab-image.lock"))
    assert all("--hash=sha256:" in block for block in blocks)
    assert "://" not in text


def test_pip_in_the_image_gets_this_hosts_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "pip.conf"
    config.write_text("[global]\nindex-url = https://user:word@index.example/simple\nfind-links =\n    /a\n    /b\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(config))
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    monkeypatch.setenv("PIP_TIMEOUT", "77")
    settings = ray.pip_environment()
    assert settings["PIP_INDEX_URL"] == "https://user:word@index.example/simple"
    assert settings["PIP_FIND_LINKS"] == "/a /b"
    assert settings["PIP_TIMEOUT"] == "77"
    assert "PIP_CONFIG_FILE" not in settings


def test_host_paths_in_settings_are_bound_where_the_image_can_see_them(tmp_path: Path) -> None:
    binds: dict[str, str] = {}
    value = rootfs._bind_paths(f"{tmp_path} https://index.example /no/such/path", binds)
    assert binds == {str(tmp_path.resolve()): "/run/rayrig-host/0"}
    assert value == "/run/rayrig-host/0 https://index.example /no/such/path"


def test_building_without_root_names_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(rootfs.os, "geteuid", lambda: 1000)
    with pytest.raises(RayrigError, match="sudo -E") as caught:
        rootfs.prepare_host(say=print, log=tmp_path / "log")
    assert "debootstrap" in str(caught.value)


def _checkout(folder: Path, *, time_seconds: int) -> Path:
    for package in ("contract", "images", "jobs"):
        (folder / package / "__pycache__").mkdir(parents=True)
        (folder / package / "__pycache__/x.pyc").write_bytes(b"x")
        path = folder / package / "__init__.py"
        path.write_text(f'"""{package}"""\n')
        os.utime(path, (time_seconds, time_seconds))
    return folder


def test_code_layer_depends_on_the_code_alone(tmp_path: Path) -> None:
    first = code_layer(_checkout(tmp_path / "one", time_seconds=1))
    assert code_layer(_checkout(tmp_path / "two", time_seconds=2)) == first
    (tmp_path / "two/jobs/__init__.py").write_text("changed = True\n")
    assert code_layer(tmp_path / "two") != first


def test_code_layer_belongs_to_the_images_user_and_holds_the_jobs() -> None:
    with tarfile.open(fileobj=BytesIO(code_layer(ROOT))) as tar:
        entries = tar.getmembers()
    names = {entry.name for entry in entries}
    assert {"opt/rayrig/contract/names.py", "opt/rayrig/images/verify.py", "opt/rayrig/jobs/train/ppo.py"} <= names
    assert not any("__pycache__" in name for name in names)
    assert {(entry.uid, entry.gid) for entry in entries} == {(CONTAINER_UID, CONTAINER_UID)}


def test_registry_serves_only_the_addresses_it_is_given(tmp_path: Path) -> None:
    listen = ["127.0.0.1:5001", "198.18.77.1:5001"]
    spec = registry_container_spec(node_image="node:1", store=tmp_path, listen=listen, world_id="w1")
    assert spec["command"][1:] == listen
    assert spec["labels"] == {"rayrig.rehearsal": "w1"}


def test_silent_registry_is_an_error_that_names_it() -> None:
    address = f"127.0.0.1:{_free_port(['127.0.0.1'])}"
    with pytest.raises(RayrigError, match="did not answer") as caught:
        Repository(registry=address, name="rayrig").wait_ready(0.2)
    assert address in str(caught.value)
