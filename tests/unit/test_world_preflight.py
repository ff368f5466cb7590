import os
from pathlib import Path

import pytest

from contract.errors import RayrigError
from rehearsal.world.preflight import require_lab


def test_without_root_the_commands_that_need_it_are_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(RayrigError, match="nodes need root") as caught:
        require_lab()
    for named in ("debootstrap", "cp -a", "ip address add", "sudo", "--without-nodes"):
        assert named in str(caught.value)


def test_without_docker_the_parts_that_need_it_and_the_way_to_it_are_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nothing")
    with pytest.raises(RayrigError, match="no Docker engine for the nodes, their network and their registry") as caught:
        require_lab()
    for named in ("apt-get install docker.io", "dockerd", "--without-nodes"):
        assert named in str(caught.value)
