"""What every rayrig resource is: contract models, what replaces it, and four operations."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

from pydantic import ValidationError

from contract.errors import RayrigError
from contract.inventory import WireModel
from contract.resources import Home
from provider.check import Failure
from provider.operation import Operation
from provider.values import UNKNOWN, Values, without_nulls, written

Inputs = TypeVar("Inputs", bound=WireModel)
Outputs = TypeVar("Outputs", bound=WireModel)

INCOMPLETE = "incomplete"
"""Key in the state of a resource whose last update failed: the next `up` runs it again, also without a change."""


@dataclass(frozen=True, kw_only=True)
class Created(Generic[Outputs]):
    """A new resource: its id and its outputs."""

    id: str
    outputs: Outputs


class Resource(ABC, Generic[Inputs, Outputs]):
    """One type of the `rayrig` package.

    Attributes:
        pulumi_type: its type as programs name it.
        inputs: the model of its inputs.
        outputs: the model of its outputs, which hold the inputs.
        replaced_by: paths of inputs whose change replaces it; every other change updates it.
        relearned: outputs that an update learns anew, unknown in its preview.
        resumable: whether a failed update leaves work half done, to be taken up by the next `up`.
    """

    pulumi_type: ClassVar[str]
    replaced_by: ClassVar[tuple[str, ...]]
    relearned: ClassVar[tuple[str, ...]] = ()
    resumable: ClassVar[bool] = False
    inputs: type[Inputs]
    outputs: type[Outputs]

    @abstractmethod
    def create(self, inputs: Inputs, operation: Operation) -> Created[Outputs]:
        """Makes it; on an error nothing is recorded, and the next `up` creates again."""

    @abstractmethod
    def read(self, state: Outputs, operation: Operation) -> Outputs | None:
        """Its present state; None only when it is proven to be gone. Any doubt raises."""

    @abstractmethod
    def update(self, state: Outputs, inputs: Inputs, operation: Operation) -> Outputs:
        """Brings it to new inputs."""

    @abstractmethod
    def delete(self, values: Values, operation: Operation) -> None:
        """Ends it; raising keeps it in the state.

        Args:
            values: the state as it is, so that what needs nothing of it goes even when it cannot be read.
            operation: the operation under way.
        """

    def more_failures(self, inputs: Values, olds: Values) -> tuple[Failure, ...]:
        """What is wrong beyond what the model says, in itself or against the inputs in the state (empty at first)."""
        del inputs, olds
        return ()

    def due(self, state: Values) -> str | None:
        """The output because of which an update is due although no input changed; None when none is."""
        return INCOMPLETE if state.get(INCOMPLETE) else None

    def preview_create(self, inputs: Values) -> Values:
        """The outputs as far as a preview can know them."""
        learned = self.outputs.model_fields.keys() - self.inputs.model_fields.keys()
        return {**{_alias(self.outputs, name): UNKNOWN for name in learned}, **inputs}

    def preview_update(self, state: Values, inputs: Values) -> Values:
        """The outputs after an update as far as a preview can know them."""
        kept = {key: value for key, value in state.items() if key not in {INCOMPLETE, *self.relearned}}
        return {**kept, **inputs, **dict.fromkeys(self.relearned, UNKNOWN)}

    def parse_inputs(self, values: Values) -> Inputs:
        """Inputs of the program, checked before."""
        return _parse(self.inputs, values, "inputs")

    def parse_state(self, values: Values) -> Outputs:
        """What the state holds."""
        known = {_alias(self.outputs, name) for name in self.outputs.model_fields}
        return _parse(self.outputs, {key: item for key, item in values.items() if key in known}, "state")

    def home_of(self, values: Values) -> Home:
        """The account, region and endpoint that inputs or a state name."""
        return _parse(Home, values.get("home") or {}, "home")


Model = TypeVar("Model", bound=WireModel)


def _alias(model: type[WireModel], name: str) -> str:
    return model.model_fields[name].alias or name


def _parse(model: type[Model], values: Values, part: str) -> Model:
    try:
        return model.model_validate(without_nulls(values))
    except ValidationError as error:
        why = "; ".join(f"{written(tuple(item['loc'])) or part}: {item['msg']}" for item in error.errors())
        raise RayrigError(
            f"the resource's {part} cannot be read",
            why=why,
            next_step="use the rayrig that made this stack; `pulumi stack export` shows what it holds",
        ) from error
