"""The program before its first resource: what it asks, what it says and how it ends."""

import dataclasses
from pathlib import Path
from typing import Any

import grpc
import pulumi
import pytest
from in_moto import REGION, in_moto
from infra_recording import CPU_TYPE, DIGEST, PUBLIC_KEY, facts, spec

from account import clients
from account.clients import AwsError
from contract.errors import CloudError
from contract.inventory import Endpoint, EndpointKind
from infra import engine_stop, program
from infra import facts as facts_module
from infra.config import read_config
from infra.engine_stop import MESSAGE, end_quietly
from infra.facts import gather
from infra.program import MESSAGE_SHOWN, check

AWS = Endpoint(kind=EndpointKind.AWS)
GOOD = {
    "aws:region": REGION,
    "rayrig:accessCidr": "203.0.113.7/32",
    "rayrig:image": f"ray@{DIGEST}",
    "rayrig:workerType": "m7i.large",
}


@dataclasses.dataclass
class Shell:
    """What a person has set, and what the program says."""

    config: dict[str, str]
    errors: list[str] = dataclasses.field(default_factory=list)
    warnings: list[str] = dataclasses.field(default_factory=list)


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Shell:
    found = Shell(config=dict(GOOD))
    monkeypatch.setattr(program, "read_config", lambda: found.config)
    monkeypatch.setattr(pulumi.log, "error", found.errors.append)
    monkeypatch.setattr(pulumi.log, "warn", found.warnings.append)
    (tmp_path / "key.pub").write_text(PUBLIC_KEY)
    monkeypatch.setenv("RAYRIG_SSH_KEY", str(tmp_path / "key"))
    return found


def answers(monkeypatch: pytest.MonkeyPatch, outcome: object) -> None:
    def give(*_: object) -> object:
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    monkeypatch.setattr(program, "gather", give)


def ends(shell: Shell) -> list[str]:
    with pytest.raises(SystemExit) as caught:
        check(stack="dev")
    # 32 tells Pulumi's Python host that the person has the message already: it adds none, and no traceback.
    assert caught.value.code == MESSAGE_SHOWN == 32
    assert all("\n" not in line for line in shell.errors)
    return shell.errors


def test_a_good_configuration_passes(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, facts(CPU_TYPE))
    checked = check(stack="dev")
    assert checked.home.account_id == "123456789012"
    assert checked.public_key == PUBLIC_KEY
    assert not shell.errors
    assert not shell.warnings


def test_everything_local_is_told_at_once_before_aws_is_asked(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, AssertionError("AWS was asked"))
    monkeypatch.setenv("RAYRIG_SSH_KEY", "/nowhere/key")
    shell.config |= {
        "rayrig:workers": "-1",
        "rayrig:accessCidr": "::/0",
        "rayrig:acessCidr": "",
        "rayrig:ttlHours": "99",
    }
    errors = ends(shell)
    assert [line.split(": ")[0] for line in errors] == [
        "rayrig:acessCidr",
        "rayrig:workers",
        "rayrig:accessCidr",
        "RAYRIG_SSH_KEY",
    ]
    assert len(shell.warnings) == 1


def test_what_aws_refuses_is_one_message(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, CloudError("cannot describe the instance type m7i.large", why="not authorized"))
    assert ends(shell) == ["cannot describe the instance type m7i.large. not authorized."]


def test_what_the_account_lacks_ends_the_program(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, dataclasses.replace(facts(CPU_TYPE), types={"m7i.large": None}))
    (line,) = ends(shell)
    assert "eu-west-1 has no instance type 'm7i.large'" in line


def test_without_credentials_it_ends_readably(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    (line,) = ends(shell)
    assert line.startswith("no usable AWS credentials. ")
    assert "Next: aws configure" in line


class Parameters:
    """An SSM client whose public parameters moto lacks."""

    meta = clients.session().client("ssm", region_name=REGION).meta

    def get_parameter(self, Name: str) -> dict[str, Any]:  # noqa: N803 - boto's name
        return {"Parameter": {"Value": "ami-gpu" if "deeplearning" in Name else "ami-cpu"}}


@pytest.fixture
def moto(monkeypatch: pytest.MonkeyPatch) -> Any:
    real = clients.client
    with in_moto(monkeypatch):
        monkeypatch.setattr(
            facts_module.clients, "client", lambda name, **how: Parameters() if name == "ssm" else real(name, **how)
        )
        yield


@pytest.mark.usefixtures("moto")
def test_the_facts_of_a_spec_come_from_aws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts_module.ami, "_root_bytes", lambda *_: None)
    found = gather(spec(head_type="m7i.large", worker_type="g4dn.xlarge"), AWS)
    assert found.caller.account_id == "123456789012"
    assert {name: kind and kind.gpu_count for name, kind in found.types.items()} == {"m7i.large": 0, "g4dn.xlarge": 1}
    assert {name: image.id for name, image in found.amis.items()} == {"m7i.large": "ami-cpu", "g4dn.xlarge": "ami-gpu"}
    assert found.zones
    assert found.zones[0].startswith(REGION)


@pytest.mark.usefixtures("moto")
def test_a_type_that_the_region_lacks_has_no_hardware_and_no_image(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts_module.ami, "_root_bytes", lambda *_: None)
    found = gather(spec(head_type="m7i.large", worker_type="m99.large"), AWS)
    assert found.types["m99.large"] is None
    assert set(found.amis) == {"m7i.large"}


@pytest.mark.usefixtures("moto")
def test_zones_that_we_may_not_ask_for_are_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    denied = AwsError("no", where=None, code="UnauthorizedOperation", message="no")
    broken = AwsError("no", where=None, code="InternalError", message="no")
    monkeypatch.setattr(facts_module.ami, "_root_bytes", lambda *_: None)
    monkeypatch.setattr(facts_module.offerings, "zones_offering", lambda *_: (_ for _ in ()).throw(denied))
    assert gather(spec(workers=0), AWS).zones is None
    monkeypatch.setattr(facts_module.offerings, "zones_offering", lambda *_: (_ for _ in ()).throw(broken))
    with pytest.raises(AwsError):
        gather(spec(workers=0), AWS)


def test_the_whole_configuration_is_read_with_and_without_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PULUMI_CONFIG", '{"rayrig:workers": "1", "rayrig:image": "a"}')
    pulumi.runtime.set_all_config({"rayrig:workers": "3"})
    try:
        assert read_config() == {"rayrig:workers": "3", "rayrig:image": "a"}
    finally:
        pulumi.runtime.set_all_config({})


class Refusal(grpc.RpcError):
    def __init__(self, code: grpc.StatusCode) -> None:
        super().__init__()
        self._code = code

    def code(self) -> grpc.StatusCode:
        return self._code


class Engine:
    """A monitor that answers every registration with one code."""

    def __init__(self, code: grpc.StatusCode) -> None:
        self._code = code

    def RegisterResource(self, _: object) -> None:  # noqa: N802 - gRPC's name
        raise Refusal(self._code)

    def SupportsFeature(self, _: object) -> str:  # noqa: N802 - gRPC's name
        return "yes"


@pytest.mark.parametrize("code", [grpc.StatusCode.CANCELLED, grpc.StatusCode.UNAVAILABLE])
def test_a_registration_that_the_engine_cuts_off_ends_the_run_with_one_line(
    code: grpc.StatusCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monitor = quieted(Engine(code), monkeypatch)
    with pytest.raises(pulumi.RunError, match=MESSAGE):
        monitor.RegisterResource(None)
    assert monitor.SupportsFeature(None) == "yes"


def test_other_errors_of_the_engine_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Refusal):
        quieted(Engine(grpc.StatusCode.INVALID_ARGUMENT), monkeypatch).RegisterResource(None)


def quieted(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Any:
    class Settings:
        monitor: Any = engine

    held = Settings()
    monkeypatch.setattr(engine_stop.settings, "SETTINGS", held)
    monkeypatch.setattr(engine_stop.settings, "get_monitor", lambda: held.monitor)
    end_quietly()
    once = held.monitor
    end_quietly()
    assert held.monitor is once
    return once
