"""What stands before moto: the rehearsal's marker and own endpoints, the gap fillers, faults, the request log."""

import json
import sys
import threading
import traceback
from collections.abc import Callable, Iterable
from typing import Any

from moto.backends import list_of_moto_modules
from moto.ec2.models import ec2_backends
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

from rehearsal.aws import dependencies, groups, identity, launches, lifecycle
from rehearsal.aws.faults import Faults
from rehearsal.aws.images import publish_images
from rehearsal.aws.permissions import Asked, check_permissions
from rehearsal.aws.request_log import RequestLog
from rehearsal.aws.s3_actions import needed
from rehearsal.aws.wire import (
    UNREAD_SERVICES,
    Answer,
    AwsRefusal,
    Call,
    Environ,
    empty_list_answer,
    json_answer,
    read_call,
    refusal_answer,
    write_back,
)

MARKER = "/rayrig-rehearsal"
SERVICE_NAMES = {"elasticfilesystem": "efs", "tagging": "resourcegroupstaggingapi", "monitoring": "cloudwatch"}
"""Names that calls are signed with, where moto calls the service otherwise."""

Before = Callable[[Call, str], None]
After = Callable[[Call, str, Answer], None]

BEFORE: dict[tuple[str, str], Before] = {
    ("ec2", "RunInstances"): launches.before_launch,
    ("ec2", "DeleteSubnet"): dependencies.before_delete_subnet,
    ("ec2", "DeleteSecurityGroup"): dependencies.before_delete_group,
    ("ec2", "DetachInternetGateway"): dependencies.before_detach_gateway,
    ("ec2", "DeleteVpc"): dependencies.before_delete_vpc,
    ("ec2", "ModifyInstanceAttribute"): launches.before_modify_instance,
    ("ec2", "ModifyInstanceMetadataOptions"): launches.before_modify_metadata,
    ("iam", "RemoveRoleFromInstanceProfile"): identity.before_remove_role,
    ("iam", "CreateRole"): identity.before_trust,
    ("iam", "UpdateAssumeRolePolicy"): identity.before_trust,
}
AFTER: dict[tuple[str, str], After] = {
    ("ec2", "RunInstances"): launches.after_launch,
    ("ec2", "TerminateInstances"): launches.after_terminate,
    ("ec2", "DeleteSubnet"): dependencies.after_delete_subnet,
    ("ec2", "AuthorizeSecurityGroupIngress"): groups.after_authorize,
    ("ec2", "AuthorizeSecurityGroupEgress"): groups.after_authorize,
    ("ec2", "ModifySecurityGroupRules"): groups.after_modify_rules,
    ("ec2", "ModifyInstanceAttribute"): groups.after_modify_instance,
}

NONE_OF = {
    ("ec2", "DescribePlacementGroups"): "placementGroupSet",
    ("ec2", "DescribeCapacityReservations"): "capacityReservationSet",
}
"""Lists of what cannot be made in a rehearsal: truly empty, though moto does not know the call."""


class Front:
    """A WSGI application: one world's AWS.

    Calls other than S3's pass one at a time: moto's tables are not made for threads, and each takes milliseconds.
    """

    def __init__(self, *, world_id: str, account_id: str, region: str, log: RequestLog, weigh_policies: bool) -> None:
        self.world = {"worldId": world_id, "accountId": account_id, "region": region}
        self.faults = Faults()
        self._account_id = account_id
        self._region = region
        self._log = log
        self._weigh_policies = weigh_policies
        self._moto: Any = DomainDispatcherApplication(create_backend_app)
        self._lock = threading.RLock()
        self._published: set[str] = set()

    def __call__(self, environ: Environ, start_response: Any) -> Iterable[bytes]:  # noqa: ANN401 - WSGI's callable
        """Answers one request."""
        if environ.get("PATH_INFO", "").startswith(MARKER):
            return self._own(environ).send(start_response)
        call = read_call(environ, default_region=self._region)
        try:
            self.faults.strike(call)
            self._check_permissions(call, environ)
            answer = self._pass_on(call, environ)
        except AwsRefusal as refusal:
            answer = refusal_answer(call, refusal)
        self._log.add(call, status=answer.code, error_code=answer.error_code())
        return answer.send(start_response)

    def _check_permissions(self, call: Call, environ: Environ) -> None:
        if not self._weigh_policies:
            return
        if call.service == "s3":
            check_permissions(call, self._account_id, needed(call, environ))
        else:
            check_permissions(call, self._account_id, [Asked(action=f"{call.service}:{call.action}")])

    def _pass_on(self, call: Call, environ: Environ) -> Answer:
        if call.service in UNREAD_SERVICES:
            return self._ask_moto(call, environ)
        name = SERVICE_NAMES.get(call.service, call.service)
        if name not in list_of_moto_modules():
            raise AwsRefusal(
                "NotSimulated", f"the rehearsal has no {call.service} (asked for {call.action})", status=501
            )
        with self._lock:
            if call.region not in self._published and call.service in {"ec2", "ssm"}:
                publish_images(self._account_id, call.region)
                self._published.add(call.region)
            key = (call.service, call.action)
            if key in NONE_OF:
                return empty_list_answer(call, NONE_OF[key])
            if key in BEFORE:
                BEFORE[key](call, self._account_id)
            write_back(call, environ)
            answer = self._ask_moto(call, environ)
            if answer.ok and key in AFTER:
                AFTER[key](call, self._account_id, answer)
            return answer

    def _ask_moto(self, call: Call, environ: Environ) -> Answer:
        got: dict[str, Any] = {}

        def start(status: str, headers: list[tuple[str, str]], exc_info: object = None) -> None:  # noqa: ARG001 - WSGI
            got.update(status=status, headers=headers)

        try:
            chunks = self._moto(environ, start)
            try:
                body = b"".join(chunks)
            finally:
                if hasattr(chunks, "close"):
                    chunks.close()
        except AwsRefusal:
            raise
        except NotImplementedError as error:
            raise AwsRefusal("NotSimulated", f"the rehearsal has no {call.action}: {error}", status=501) from error
        except Exception as error:
            traceback.print_exc(file=sys.stderr)
            raise AwsRefusal(
                "RehearsalError", f"moto failed on {call.action}: {type(error).__name__}: {error}", status=501
            ) from error
        return Answer(status=got["status"], headers=got["headers"], body=body)

    def _own(self, environ: Environ) -> Answer:
        path, method = environ["PATH_INFO"].removeprefix(MARKER).strip("/"), environ["REQUEST_METHOD"]
        match method, path.split("/"):
            case "GET", [""]:
                return json_answer(self.world)
            case "POST", ["instances", instance_id, "powered-off"]:
                return self._power_off(instance_id)
            case "POST", ["faults"]:
                return self._arm(environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0)))
            case "DELETE", ["faults"]:
                self.faults.clear()
                return json_answer({})
        return json_answer({"error": f"no {method} {environ['PATH_INFO']}"}, status="404 Not Found")

    def _power_off(self, instance_id: str) -> Answer:
        with self._lock:
            try:
                return json_answer({"state": lifecycle.powered_off(self._account_id, instance_id)})
            except lifecycle.NoSuchInstance:
                return json_answer({"error": f"no instance {instance_id}"}, status="404 Not Found")

    def _arm(self, body: bytes) -> Answer:
        try:
            self.faults.arm(json.loads(body))
        except (ValueError, TypeError) as error:
            return json_answer({"error": str(error)}, status="400 Bad Request")
        return json_answer({})

    def public_addresses(self) -> set[str]:
        """Every public address that moto shows now, in all regions."""
        regions = list(ec2_backends[self._account_id].values())
        interfaces = [interface for ec2 in regions for interface in list(ec2.enis.values())]
        return {interface.public_ip for interface in interfaces if interface.public_ip}
