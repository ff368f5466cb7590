"""The engine's requests over gRPC; errors reach the person as one paragraph.

The servicer is written against the protocol itself: `pulumi.provider.experimental` appends source lines to errors,
does not pass old inputs on, and cannot say that a resource was half made.
"""

import threading
from collections.abc import Callable
from typing import Any, NoReturn, TypeAlias, TypeVar

import grpc
from google.protobuf import any_pb2, empty_pb2
from pulumi.runtime.proto import plugin_pb2, provider_pb2, provider_pb2_grpc, status_pb2

from contract.errors import ConfigError, RayrigError
from rehearsal.double import lifecycle
from rehearsal.double.check import check
from rehearsal.double.config import check_config, open_session, refuse_another_world
from rehearsal.double.diff import Difference, differences, must_delete_first
from rehearsal.double.registry import table_of
from rehearsal.double.session import Session
from rehearsal.double.table import Table
from rehearsal.double.values import Values, from_wire, to_wire
from rehearsal.double.version import VERSION

T = TypeVar("T")
Context: TypeAlias = Any
"""grpc's ServicerContext; grpc comes without types."""


def token_of(urn: str) -> str:
    """The type in a URN."""
    return urn.split("::")[2].rpartition("$")[2]


def name_of(urn: str) -> str:
    """The name in a URN."""
    return urn.split("::", 3)[3]


class Servicer(provider_pb2_grpc.ResourceProviderServicer):
    """One provider instance.

    Args:
        on_cancel: called when the engine asks for an end.
    """

    def __init__(self, on_cancel: Callable[[], None]) -> None:
        self._on_cancel = on_cancel
        self._session: Session | None = None
        self._lock = threading.Lock()

    # The engine's own names, upper case and all.
    def Handshake(self, request: Any, context: Context) -> Any:  # noqa: ANN401, ARG002, N802
        """Says what this provider takes."""
        return provider_pb2.ProviderHandshakeResponse(
            accept_secrets=False, accept_resources=False, accept_outputs=False
        )

    def GetPluginInfo(self, request: Any, context: Context) -> Any:  # noqa: ANN401, ARG002, N802
        """The version."""
        return plugin_pb2.PluginInfo(version=VERSION)

    def Cancel(self, request: Any, context: Context) -> Any:  # noqa: ANN401, ARG002, N802
        """Ends every wait, so that what is under way answers with what it has, then the process."""
        with self._lock:
            if self._session is not None:
                self._session.cancelled.set()
        self._on_cancel()
        return empty_pb2.Empty()

    def CheckConfig(self, request: Any, context: Context) -> Any:  # noqa: ANN401, N802
        """Looks at the configuration's form."""

        def work() -> Any:  # noqa: ANN401
            news = from_wire(request.news)
            failures = [
                provider_pb2.CheckFailure(property=key, reason=reason) for key, reason in check_config(news).items()
            ]
            return provider_pb2.CheckResponse(inputs=request.news, failures=failures)

        return self._answer(context, "aws provider", work)

    def DiffConfig(self, request: Any, context: Context) -> Any:  # noqa: ANN401, N802
        """Refuses to move a stack to another world; anything else changes without replacing."""

        def work() -> Any:  # noqa: ANN401
            olds, news = from_wire(request.old_inputs) or from_wire(request.olds), from_wire(request.news)
            refuse_another_world(olds, news)
            changed = sorted(key for key in olds.keys() | news.keys() if olds.get(key) != news.get(key))
            kind = provider_pb2.DiffResponse.DIFF_SOME if changed else provider_pb2.DiffResponse.DIFF_NONE
            return provider_pb2.DiffResponse(changes=kind, diffs=changed)

        return self._answer(context, "aws provider", work)

    def Configure(self, request: Any, context: Context) -> Any:  # noqa: ANN401, N802
        """Opens the session, or refuses: the safety interlock."""

        def work() -> Any:  # noqa: ANN401
            session = open_session(from_wire(request.args))
            with self._lock:
                self._session = session
            return provider_pb2.ConfigureResponse(
                acceptSecrets=False, supportsPreview=True, acceptResources=False, acceptOutputs=False
            )

        return self._answer(context, None, work)

    def Check(self, request: Any, context: Context) -> Any:  # noqa: ANN401, N802
        """Completes the inputs and tells mistakes."""

        def work() -> Any:  # noqa: ANN401
            inputs, failures = check(
                table_of(token_of(request.urn)),
                news=from_wire(request.news),
                olds=from_wire(request.olds),
                name=name_of(request.urn),
                seed=request.randomSeed,
            )
            told = [provider_pb2.CheckFailure(property=each.path, reason=each.reason) for each in failures]
            return provider_pb2.CheckResponse(inputs=to_wire(inputs), failures=told)

        return self._answer(context, name_of(request.urn), work)

    def Diff(self, request: Any, context: Context) -> Any:  # noqa: ANN401, N802
        """Says what changes, and whether in place."""

        def work() -> Any:  # noqa: ANN401
            table, session = self._of(request)
            olds, news = from_wire(request.olds), from_wire(request.news)
            found = differences(
                table,
                olds=olds,
                news=news,
                default_tags=session.default_tags,
                ignored=frozenset(request.ignoreChanges),
            )
            return _diff_response(table, found, olds=olds, news=news)

        return self._answer(context, name_of(request.urn), work)

    def Create(self, request: Any, context: Context) -> Any:  # noqa: ANN401, N802
        """Makes a resource, or foresees it."""

        def work() -> Any:  # noqa: ANN401
            table, session = self._of(request)
            inputs = from_wire(request.properties)
            if request.preview:
                return provider_pb2.CreateResponse(
                    id="", properties=to_wire(lifecycle.foreseen(table, session, inputs))
                )
            try:
                resource_id, state = lifecycle.create(table, session, inputs)
            except lifecycle.HalfMade as half:
                _abort_half_made(context, half, inputs)
            return provider_pb2.CreateResponse(id=resource_id, properties=to_wire(state))

        return self._answer(context, name_of(request.urn), work)

    def Read(self, request: Any, context: Context) -> Any:  # noqa: ANN401, N802
        """Looks at AWS; an empty answer means that the resource is gone."""

        def work() -> Any:  # noqa: ANN401
            table, session = self._of(request)
            seen = lifecycle.read(
                table,
                session,
                request.id,
                state=from_wire(request.properties),
                inputs=from_wire(request.inputs),
            )
            if seen is None:
                return provider_pb2.ReadResponse()
            return provider_pb2.ReadResponse(id=request.id, properties=to_wire(seen.state), inputs=to_wire(seen.inputs))

        return self._answer(context, name_of(request.urn), work)

    def Update(self, request: Any, context: Context) -> Any:  # noqa: ANN401, N802
        """Changes a resource in place, or foresees it."""

        def work() -> Any:  # noqa: ANN401
            table, session = self._of(request)
            olds, news = from_wire(request.olds), from_wire(request.news)
            if request.preview:
                state = lifecycle.previewed_update(table, session, olds=olds, news=news)
            else:
                state = lifecycle.update(table, session, request.id, olds=olds, news=news)
            return provider_pb2.UpdateResponse(properties=to_wire(state))

        return self._answer(context, name_of(request.urn), work)

    def Delete(self, request: Any, context: Context) -> Any:  # noqa: ANN401, N802
        """Ends a resource."""

        def work() -> Any:  # noqa: ANN401
            table, session = self._of(request)
            table.handler.delete(session, request.id, from_wire(request.properties))
            return empty_pb2.Empty()

        return self._answer(context, name_of(request.urn), work)

    def Invoke(self, request: Any, context: Context) -> Any:  # noqa: ANN401, N802
        """No function is simulated."""

        def work() -> Any:  # noqa: ANN401
            raise ConfigError(
                "the rehearsal's aws provider simulates no functions",
                where=request.tok,
                next_step="ask AWS through account/ before the program, as the rest of rayrig does",
            )

        return self._answer(context, request.tok, work)

    def GetMapping(self, request: Any, context: Context) -> Any:  # noqa: ANN401, ARG002, N802
        """No mapping for converters."""
        return provider_pb2.GetMappingResponse()

    def _of(self, request: Any) -> tuple[Table, Session]:  # noqa: ANN401 - the engine's requests
        if self._session is None:
            raise ConfigError("the aws provider was not configured")
        values: Values = {}
        for part in ("properties", "olds", "news"):
            if part in request.DESCRIPTOR.fields_by_name:
                values |= from_wire(getattr(request, part))
        region = values.get("region")
        known = region if isinstance(region, str) else self._session.region
        deadline = getattr(request, "timeout", 0) or None
        return table_of(token_of(request.urn)), self._session.within(region=known, deadline_seconds=deadline)

    def _answer(self, context: Context, where: str | None, work: Callable[[], T]) -> T:
        try:
            return work()
        except RayrigError as error:
            if error.where is None:
                error.where = where
            _abort(context, str(error))


def _abort(context: Context, text: str) -> NoReturn:
    context.abort(grpc.StatusCode.UNKNOWN, text)
    raise AssertionError(text)


def _abort_half_made(context: Context, half: lifecycle.HalfMade, inputs: Values) -> NoReturn:
    """Answers so that the engine keeps the id of what exists, tainted."""
    detail = provider_pb2.ErrorResourceInitFailed(
        id=half.resource_id,
        properties=to_wire(half.state),
        reasons=[half.reason],
        inputs=to_wire(inputs),
    )
    packed = any_pb2.Any()
    packed.Pack(detail)
    status = status_pb2.Status(code=grpc.StatusCode.UNKNOWN.value[0], message=half.reason, details=[packed])
    context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
    _abort(context, half.reason)


KINDS = {
    ("add", False): provider_pb2.PropertyDiff.ADD,
    ("add", True): provider_pb2.PropertyDiff.ADD_REPLACE,
    ("remove", False): provider_pb2.PropertyDiff.DELETE,
    ("remove", True): provider_pb2.PropertyDiff.DELETE_REPLACE,
    ("change", False): provider_pb2.PropertyDiff.UPDATE,
    ("change", True): provider_pb2.PropertyDiff.UPDATE_REPLACE,
}


def _diff_response(table: Table, found: list[Difference], *, olds: Values, news: Values) -> Any:  # noqa: ANN401
    replaces = [each.path for each in found if each.replaces]
    return provider_pb2.DiffResponse(
        changes=provider_pb2.DiffResponse.DIFF_SOME if found else provider_pb2.DiffResponse.DIFF_NONE,
        diffs=sorted({each.top for each in found}),
        replaces=replaces,
        deleteBeforeReplace=bool(replaces) and must_delete_first(table, olds=olds, news=news),
        detailedDiff={each.path: provider_pb2.PropertyDiff(kind=KINDS[each.how, each.replaces]) for each in found},
        hasDetailedDiff=True,
    )
