"""The engine's calls, answered from a table of resources; errors become one readable paragraph."""

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, NoReturn, TypeVar

import grpc
from google.protobuf import empty_pb2
from pulumi.runtime.proto import plugin_pb2, provider_pb2, provider_pb2_grpc, status_pb2

from contract.errors import RayrigError
from provider.check import check_home, check_inputs
from provider.cluster import Cluster
from provider.diff import Change, Difference, differences
from provider.engine_log import EngineLog
from provider.interlock import Interlock
from provider.kept_bucket import KeptBucket
from provider.nodes import Node, RayFleet, RayHead
from provider.operation import Cancellation, CancelledOperationError, Operation
from provider.places import log_file
from provider.resource import INCOMPLETE, Resource
from provider.values import Values, from_struct, to_struct, without_nulls

RESOURCES: dict[str, Resource[Any, Any]] = {
    resource.pulumi_type: resource for resource in (Cluster(), KeptBucket(), Node(), RayHead(), RayFleet())
}
T = TypeVar("T")

# FAILED_PRECONDITION, never UNKNOWN or INTERNAL: after those the engine takes a create for half done and keeps a
# pending operation in the state, which only a person can clear.
FAILED = grpc.StatusCode.FAILED_PRECONDITION
_DETAILS_KEY = "grpc-status-details-bin"
_KINDS = {
    (Change.ADD, False): provider_pb2.PropertyDiff.ADD,
    (Change.ADD, True): provider_pb2.PropertyDiff.ADD_REPLACE,
    (Change.DELETE, False): provider_pb2.PropertyDiff.DELETE,
    (Change.DELETE, True): provider_pb2.PropertyDiff.DELETE_REPLACE,
    (Change.UPDATE, False): provider_pb2.PropertyDiff.UPDATE,
    (Change.UPDATE, True): provider_pb2.PropertyDiff.UPDATE_REPLACE,
}


class Servicer(provider_pb2_grpc.ResourceProviderServicer):
    """Answers the engine; every call has a thread of its own, so blocking work runs in parallel.

    Args:
        engine_address: where the engine's display is; None until the engine tells it.
        version: the plugin's version.
        cancellation: told when the engine or a signal stops the work.
    """

    def __init__(self, *, engine_address: str | None, version: str, cancellation: Cancellation) -> None:
        self._log = EngineLog(engine_address)
        self._version = version
        self._cancellation = cancellation
        self._interlock = Interlock()

    def Handshake(self, request: Any, context: Any) -> Any:  # noqa: ANN401, ARG002, N802 - gRPC's signature
        """Learns where the engine is; secrets and outputs are taken as plain values, we have none to hide."""
        if request.engine_address:
            self._log = EngineLog(request.engine_address)
        return provider_pb2.ProviderHandshakeResponse()

    def Attach(self, request: Any, context: Any) -> Any:  # noqa: ANN401, ARG002, N802 - gRPC's signature
        """Learns where the engine is when it was started apart (PULUMI_DEBUG_PROVIDERS)."""
        self._log = EngineLog(request.address)
        return empty_pb2.Empty()

    def GetPluginInfo(self, request: Any, context: Any) -> Any:  # noqa: ANN401, ARG002, N802 - gRPC's signature
        """The plugin's version."""
        return plugin_pb2.PluginInfo(version=self._version)

    def CheckConfig(self, request: Any, context: Any) -> Any:  # noqa: ANN401, ARG002, N802 - gRPC's signature
        """The provider itself has nothing to configure: a resource's `home` says where it lives."""
        return provider_pb2.CheckResponse(inputs=request.news)

    def DiffConfig(self, request: Any, context: Any) -> Any:  # noqa: ANN401, ARG002, N802 - gRPC's signature
        """No configuration, no difference."""
        return provider_pb2.DiffResponse(changes=provider_pb2.DiffResponse.DIFF_NONE)

    def Configure(self, request: Any, context: Any) -> Any:  # noqa: ANN401, ARG002, N802 - gRPC's signature
        """Previews of creates and updates are answered here."""
        return provider_pb2.ConfigureResponse(supportsPreview=True)

    def Cancel(self, request: Any, context: Any) -> Any:  # noqa: ANN401, ARG002, N802 - gRPC's signature
        """Stops what is under way."""
        self._cancellation.tell()
        return empty_pb2.Empty()

    def Check(self, request: Any, context: Any) -> Any:  # noqa: ANN401, N802 - gRPC's signature
        """Validates inputs and fills in defaults."""
        with _readable(context):
            resource = _resource(request.urn)
            olds, news = from_struct(request.olds), from_struct(request.news)
            checked = check_inputs(resource.inputs, news)
            failures = (*checked.failures, *resource.more_failures(checked.inputs, olds), *check_home(olds, news))
            return provider_pb2.CheckResponse(
                inputs=to_struct(checked.inputs),
                failures=[provider_pb2.CheckFailure(property=item.property, reason=item.reason) for item in failures],
            )

    def Diff(self, request: Any, context: Any) -> Any:  # noqa: ANN401, N802 - gRPC's signature
        """Compares inputs; a resource that is due for another reason is updated."""
        with _readable(context):
            resource = _resource(request.urn)
            state, news = from_struct(request.olds), from_struct(request.news)
            olds = from_struct(request.old_inputs) if request.HasField("old_inputs") else _inputs_in(resource, state)
            found = differences(olds, news, replaced_by=resource.replaced_by)
            return _diff_response(found, resource.due(state))

    def Create(self, request: Any, context: Any) -> Any:  # noqa: ANN401, N802 - gRPC's signature
        """Makes a resource."""
        with _readable(context):
            resource, values = _resource(request.urn), from_struct(request.properties)
            if request.preview:
                return provider_pb2.CreateResponse(properties=to_struct(resource.preview_create(values)))
            operation = self._operation(request.urn)
            created = self._run(resource, values, lambda: resource.create(resource.parse_inputs(values), operation))
            return provider_pb2.CreateResponse(id=created.id, properties=to_struct(_wire(created.outputs)))

    def Read(self, request: Any, context: Any) -> Any:  # noqa: ANN401, N802 - gRPC's signature
        """Looks at a resource; an empty answer says that it is gone."""
        with _readable(context):
            resource, state = _resource(request.urn), from_struct(request.properties)
            if not state:
                raise RayrigError(
                    "rayrig's resources cannot be imported", where=request.id, next_step="pulumi up makes them"
                )
            operation = self._operation(request.urn)
            outputs = self._run(resource, state, lambda: resource.read(resource.parse_state(state), operation))
            if outputs is None:
                return provider_pb2.ReadResponse()
            kept = {INCOMPLETE: state[INCOMPLETE]} if INCOMPLETE in state else {}
            return provider_pb2.ReadResponse(
                id=request.id, properties=to_struct({**_wire(outputs), **kept}), inputs=request.inputs
            )

    def Update(self, request: Any, context: Any) -> Any:  # noqa: ANN401, N802 - gRPC's signature
        """Brings a resource to new inputs; where work may be half done, a failure is kept in the state."""
        with _readable(context):
            resource = _resource(request.urn)
            state, news = from_struct(request.olds), from_struct(request.news)
            if request.preview:
                return provider_pb2.UpdateResponse(properties=to_struct(resource.preview_update(state, news)))
            self._interlock.require(resource.home_of(state))
            operation = self._operation(request.urn)
            try:
                outputs = self._run(
                    resource,
                    news,
                    lambda: resource.update(resource.parse_state(state), resource.parse_inputs(news), operation),
                )
            except RayrigError as error:
                if resource.resumable:
                    _abort_incomplete(context, request, str(error))
                raise
            return provider_pb2.UpdateResponse(properties=to_struct(_wire(outputs)))

    def Delete(self, request: Any, context: Any) -> Any:  # noqa: ANN401, N802 - gRPC's signature
        """Ends a resource."""
        with _readable(context):
            resource, state = _resource(request.urn), from_struct(request.properties)
            operation = self._operation(request.urn)
            self._run(resource, state, lambda: resource.delete(state, operation))
            return empty_pb2.Empty()

    def _operation(self, urn: str) -> Operation:
        return Operation(urn=urn, log=self._log, cancellation=self._cancellation)

    def _run(self, resource: Resource[Any, Any], values: Values, work: Callable[[], T]) -> T:
        """Runs work behind the interlock, ready to be cancelled."""
        home = resource.home_of(values)

        def guarded() -> T:
            self._cancellation.check()
            self._interlock.require(home)
            return work()

        return self._cancellation.run(guarded)


def _resource(urn: str) -> Resource[Any, Any]:
    token = urn.split("::")[2].rsplit("$", 1)[-1]
    if token not in RESOURCES:
        raise RayrigError(f"rayrig has no resource type {token}", why=f"it has {', '.join(RESOURCES)}")
    return RESOURCES[token]


def _inputs_in(resource: Resource[Any, Any], state: Values) -> Values:
    names = {field.alias or name for name, field in resource.inputs.model_fields.items()}
    return {key: value for key, value in state.items() if key in names}


def _wire(outputs: Any) -> Values:  # noqa: ANN401 - any of the resources' models
    values: Values = without_nulls(outputs.to_wire())
    return values


def _diff_response(found: tuple[Difference, ...], due: str | None) -> Any:  # noqa: ANN401 - a protobuf message
    changes = provider_pb2.DiffResponse.DIFF_SOME if found or due else provider_pb2.DiffResponse.DIFF_NONE
    detailed = {
        item.name: provider_pb2.PropertyDiff(kind=_KINDS[item.change, item.replaces], inputDiff=True) for item in found
    }
    if due:
        detailed[due] = provider_pb2.PropertyDiff(kind=provider_pb2.PropertyDiff.UPDATE, inputDiff=False)
    return provider_pb2.DiffResponse(
        changes=changes,
        diffs=sorted({item.top for item in found} | ({due} if due else set())),
        replaces=sorted({item.top for item in found if item.replaces}),
        detailedDiff=detailed,
        hasDetailedDiff=True,
    )


@contextmanager
def _readable(context: Any) -> Iterator[None]:  # noqa: ANN401 - gRPC's servicer context
    """Answers errors with a status of our own: the engine shows its text as it is."""
    try:
        yield
    except CancelledOperationError as error:
        context.abort(grpc.StatusCode.CANCELLED, str(error))
    except RayrigError as error:
        context.abort(FAILED, str(error))
    except Exception as error:  # the plugin's edge: whatever it is, the person reads one line of it
        if context.code() is not None:  # aborted on purpose, further in
            raise
        context.abort(FAILED, _bug(error))


def _bug(error: Exception) -> str:
    path = log_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as log:
        log.write(f"{datetime.now(UTC).isoformat()}\n{''.join(traceback.format_exception(error))}\n")
    return f"rayrig itself failed: {type(error).__name__}: {error}. The details are in {path}"


def _abort_incomplete(context: Any, request: Any, reason: str) -> NoReturn:  # noqa: ANN401 - gRPC's objects
    """Fails an update so that the engine records the new inputs, and that the work on them is not done.

    The outputs stay the old ones: the next update still sees what it started from.
    """
    state = {**from_struct(request.olds), INCOMPLETE: True}
    failed = provider_pb2.ErrorResourceInitFailed(
        id=request.id, properties=to_struct(state), reasons=[reason], inputs=request.news
    )
    status = status_pb2.Status(code=FAILED.value[0], message=reason)
    status.details.add().Pack(failed)
    context.set_trailing_metadata(((_DETAILS_KEY, status.SerializeToString()),))
    context.abort(FAILED, reason)
    raise AssertionError("abort raises")
