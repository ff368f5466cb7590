"""The plugin as a process: starts fast, says its port, has the version of the SDK, ends when told."""

import subprocess
import sys
from importlib.metadata import version

import grpc
import psutil
import pytest
from google.protobuf import empty_pb2
from pulumi.runtime.proto import provider_pb2_grpc

from rehearsal.double.plugin import EXECUTABLE, install
from rehearsal.double.version import VERSION

START_CPU_SECONDS = 1.2
"""Twice what it takes here (0.35 s for Python, grpc and protobuf), so that a busy machine passes."""


@pytest.fixture
def plugin():
    process = subprocess.Popen([EXECUTABLE, "127.0.0.1:1"], stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(timeout=20)
        process.stdout.close()


def test_it_listens_soon_and_ends_on_cancel(plugin):
    port = int(plugin.stdout.readline())
    used = psutil.Process(plugin.pid).cpu_times()
    assert used.user + used.system < START_CPU_SECONDS
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub = provider_pb2_grpc.ResourceProviderStub(channel)
        assert stub.GetPluginInfo(empty_pb2.Empty(), timeout=20).version == VERSION
        stub.Cancel(empty_pb2.Empty(), timeout=20)
    assert plugin.wait(timeout=20) == 0


def test_its_version_is_the_sdks():
    assert version("pulumi-aws") == VERSION


def test_boto_is_not_loaded_before_it_is_needed():
    code = "import rehearsal.double.__main__, sys; sys.exit('boto3' in sys.modules or 'moto' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


def test_installing_links_it_into_a_pulumi_home(tmp_path):
    for _ in range(2):
        folder = install(tmp_path)
    assert folder == tmp_path / "plugins" / f"resource-aws-v{VERSION}"
    assert (folder / "pulumi-resource-aws").resolve() == EXECUTABLE
