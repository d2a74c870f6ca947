"""What lies where on the device between steps, as far as Python can ask: variables and the script's tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from lowtide.program import Source
from lowtide.record import Site
from lowtide.tf import compat, compat_watch
from lowtide.tf.labels import LayerNames
from lowtide.tf.objects import of_classes
from lowtide.tf.places import Births


class Known(NamedTuple):
    """What a chunk holds. `mode` of the site is "eager" or "graph"."""

    site: Site
    category: str
    shape: str = ""
    dtype: str = ""


class Living(NamedTuple):
    """What one look at every live Python object found."""

    tensors: list[Any]
    variables: list[Any]
    keras_variables: list[Any]
    optimizers: list[Any]
    v1_optimizers: list[Any]


def living() -> Living:
    """Every live eager tensor, variable and optimizer."""
    found = Living([], [], [], [], [])
    wanted = (
        (compat_watch.EAGER_TENSOR_CLASS, found.tensors),
        (compat_watch.VARIABLE_CLASS, found.variables),
        (keras.Variable, found.keras_variables),
        (compat.OPTIMIZER_CLASS, found.optimizers),
        (compat_watch.V1_OPTIMIZER_CLASS, found.v1_optimizers),
    )
    for thing in of_classes(*(parent for parent, _ in wanted)):
        next(into for parent, into in wanted if isinstance(thing, parent)).append(thing)
    return found


class Tensors(NamedTuple):
    number: int
    bytes: int


def count_tensors() -> Tensors:
    """How many eager tensors are alive, and their bytes, views counted whole."""
    found = of_classes(compat_watch.EAGER_TENSOR_CLASS)
    return Tensors(len(found), sum(bytes_of(t) for t in found))


def addresses(
    alive: Living, births: Births, layers: LayerNames, is_input: Callable[[Any], bool] = lambda tensor: False
) -> dict[int, Known]:
    """Where each live variable and eager tensor has its buffer, and what it is. `is_input`: of a tensor."""
    found: dict[int, Known] = {}
    for tensor in alive.tensors:
        address = _buffer(tensor)
        if address is not None:
            found[address] = _tensor(tensor, site_of(tensor, births), is_input)
    slots = _slots(alive, births)
    names = {id(compat_watch.value_of(variable)): variable for variable in alive.keras_variables}
    for variable in alive.variables:
        address = _variable_address(variable)
        if address is not None:
            found[address] = _variable(variable, names.get(id(variable)), slots, births, layers)
    return found


def _buffer(tensor: Any) -> int | None:
    """Where the tensor's own buffer begins; a view of another's is found by the chunk that it lies in."""
    if tensor.dtype in (tf.resource, tf.variant, tf.string):
        return None
    return compat.address_of(tensor)


def _variable_address(variable: Any) -> int | None:
    """None for a variable of a v1 graph: to ask for it would add ops to the graph."""
    handle = compat_watch.eager_handle(variable) if tf.executing_eagerly() else None
    return None if handle is None else compat.address_of(handle)


def _slots(alive: Living, births: Births) -> dict[int, Source | None]:
    """By identity, the variables of optimizers, with the line that made the optimizer: `fit` makes them itself."""
    slots: dict[int, Source | None] = {}
    for optimizer in alive.optimizers:
        for variable in getattr(optimizer, "variables", ()):
            slots[id(compat_watch.value_of(variable))] = births.of(optimizer)
    for optimizer in alive.v1_optimizers:
        slots.update((id(variable), births.of(optimizer)) for variable in optimizer.variables())
    return slots


def site_of(tensor: Any, births: Births) -> Site | None:
    """Where a tensor was made: seen in a detailed step, or as the latest of its shape and type that was."""
    site: Site | None = births.of(tensor)
    if site is None and tensor.shape.rank:
        site = births.like(_form(tensor))
    return site


def _form(tensor: Any) -> tuple[Any, ...]:
    return (*tensor.shape, tensor.dtype)


def note_sighted(tensors: Iterable[Any], sighted: Mapping[int, tuple[int, Site]], births: Births) -> None:
    """Tensors whose making was not seen, but the line that the script was on when their buffers appeared."""
    for tensor in tensors if sighted else ():
        address = _buffer(tensor) if births.of(tensor) is None else None
        size, site = sighted.get(address or 0, (0, None))
        if site is not None and size == bytes_of(tensor):
            births.note(tensor, site)


def bytes_of(tensor: Any) -> int:
    return int(tensor.shape.num_elements() or 0) * int(tensor.dtype.size)


def remember_forms(alive: Living, births: Births) -> None:
    """What outlived a detailed step stands for the others of its shape and type, whose making was not seen."""
    for tensor in alive.tensors:
        site = births.of(tensor)
        if site is not None and site.kind and tensor.shape.rank:
            births.stand_for(_form(tensor), site)


def _tensor(tensor: Any, site: Site | None, is_input: Callable[[Any], bool]) -> Known:
    made = site or Site("eager tensor", "", "", None, "", "eager")
    category = "inputs" if _brings_data(made.kind) or is_input(tensor) else "activations" if made.layer else "other"
    return Known(made, category, str(tuple(tensor.shape)), tensor.dtype.name)


def _brings_data(kind: str) -> bool:
    return kind in ("_EagerConst", "Const") or kind.startswith(("Iterator", "Read", "Random", "StatelessRandom"))


def _variable(
    variable: Any, owner: Any, slots: Mapping[int, Source | None], births: Births, layers: LayerNames
) -> Known:
    slot = id(variable) in slots
    name = owner.path if owner is not None else variable.name.partition(":")[0]
    layer = layers.layer_of(f"{name}") if not slot else ""
    source: Source | None = births.of(variable) or slots.get(id(variable))
    made = (layers.source_of(layer) if layer else None) or source
    category = "optimizer state" if slot else "parameters"
    shape = str(tuple(variable.shape)) if variable.shape.rank is not None else ""
    return Known(Site(name, "Variable", layer, made, "", "eager"), category, shape, variable.dtype.name)
