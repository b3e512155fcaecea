"""Restrictions on shapes, and on the surfaces that inputs and outputs are bound to."""

from __future__ import annotations

import math
from typing import Any

from hexane.chips import Evidence, generation
from hexane.formats.mil.tree import TextPlace
from hexane.restrictions.objections import extent as beyond_extent
from hexane.restrictions.reports import PublishedReport, fails, refused, runs, wrong
from hexane.restrictions.rule import Found, hit, rule
from hexane.restrictions.subject import Subject, TextPort

OWN_SIZE, UNIFORM, UNKNOWN = "own_size", "uniform_largest", "unknown"
SURFACES = (OWN_SIZE, UNIFORM, UNKNOWN)
"""Each surface as large as its own tensor; all as large as the largest of their side; not stated."""

LANES = 32
ROW_BYTES = 64
LEAST_SURFACE_BYTES = 49_152
WIDEST_BEFORE_H16 = generation("h15").max_width
CONV_INPUTS_REFUSED, CONV_INPUTS_KNOWN = 32_000, 8_192
MOST_CHANNELS = 65_536


def binding_order(names: list[str], *, results: bool = False) -> list[str]:
    """Names in the order in which the runtime binds surfaces: byte order, of ``name@output`` for results."""
    return sorted(names, key=lambda name: (name + "@output" if results else name).encode())


def _surfaces(ports: tuple[TextPort, ...]) -> tuple[TextPort, ...]:
    return tuple(port for port in ports if not port.is_buffer and port.type.is_static)


def _differ(ports: tuple[TextPort, ...]) -> bool:
    return len({port.nbytes for port in ports}) > 1


def _sizes(ports: tuple[TextPort, ...]) -> str:
    return ", ".join(f"{port.name} {port.nbytes}" for port in ports)


@rule(
    "S1",
    "allocate every output surface as large as the largest (surfaces='uniform_largest')",
    fails("Orion", "M4 Max", 15),
    fails("Espresso", "M3 Max", 15),
    fails("maderix issue 47", "M1", 26, note="unless strictly descending"),
    runs("q38", "M5 Max", 26, note="each output in its own size (S13)"),
    orion=2,
)
def output_sizes(subject: Subject) -> Found:
    """output surfaces of different sizes in bytes ({sizes}): evaluation ends in 0x1d"""
    ports = _surfaces(subject.outputs)
    if subject.surfaces == OWN_SIZE and _differ(ports):
        yield hit(ports[0].place, sizes=_sizes(ports))


@rule(
    "S2",
    "list the results in byte order of their names, or bind by name",
    wrong("Orion", "M4 Max", 15, tested=True),
    wrong("q38", "M5 Max", 26, note="-> (y, y2) bound y2 first", tested=True),
    runs("Espresso", "M3 Max", 15, note="used so; how it binds is not said"),
    runs("dev-erik", "M4 Max", 15, note="used so; how it binds is not said"),
    orion=3,
)
def result_order(subject: Subject) -> Found:
    """surfaces are bound to the results in the order {bound}, not as listed: {listed}"""
    names = [port.name for port in subject.outputs]
    bound = binding_order(names, results=True)
    if names != bound:
        first = next(port for port, name in zip(subject.outputs, bound) if port.name != name)
        yield hit(first.place, bound=", ".join(bound), listed=", ".join(names))


@rule(
    "S3",
    "allocate at least 49,152 bytes; data are read packed from byte 0",
    fails("Orion", "M4 Max", 15, note="49,152 bytes"),
    fails("Espresso", "M3 Max", 15, note="49,152 bytes"),
    fails("iphone", "A17 Pro", 26, note="16,384 bytes"),
    runs("field guide", "M3 Max", 26, note="128 bytes"),
    runs("dev-erik", "M4 Max", 15, note="4 KB"),
    orion=4,
    contested=True,
)
def surface_minimum(subject: Subject) -> Found:
    """the surface of {name} has {bytes} bytes, and some sources name a minimum of 49,152"""
    for ports in (_surfaces(subject.inputs), _surfaces(subject.outputs)):
        largest = max((port.nbytes for port in ports), default=0)
        for port in ports:
            size = largest if subject.surfaces == UNIFORM else port.nbytes
            if size < LEAST_SURFACE_BYTES:
                yield hit(port.place, name=port.name, bytes=size)
                break


_NARROW = (
    fails("field guide", "M3 Max", 26),
    fails("Espresso", "M3 Max", 15, note="16, 8 and 1"),
    wrong("q38", "M5 Max", 26, note="zeros"),
)
_ONE_WIDE = (*_NARROW, fails("Orion", "M4 Max", 15, note="1 wide, fp32"))


@rule(
    "S4",
    "pad the innermost axis to 32 lanes: it costs nothing from 1 to 32",
    *_ONE_WIDE,
    runs("Orion", "M4 Max", 15, note="16 wide; 8 wide in large surfaces"),
    runs("maderix", "M4", 15, note="16 wide"),
    runs("dev-erik", "M4 Max", 15, note="1 wide, fp16"),
)
def narrow_surface(subject: Subject) -> Found:
    """the innermost extent of {name} is {width}, and below 32 evaluation fails or gives zeros"""
    for port in (*_surfaces(subject.inputs), *_surfaces(subject.outputs)):
        if port.shape and port.width < LANES:
            if port.width > 1:
                wide = (runs("Orion", "M4 Max", 15, note="16 wide; 8 in large surfaces"), runs("maderix", "M4", 15))
                reports: tuple[PublishedReport, ...] = (*_NARROW, *wide)
            elif port.type.dtype == "fp32":
                reports = _ONE_WIDE
            else:
                reports = (*_ONE_WIDE, runs("dev-erik", "M4 Max", 15, note="1 wide, fp16"))
            yield hit(port.place, reports=reports, name=port.name, width=port.width)
            return


@rule(
    "S5",
    "pad the innermost axis so that a row is a multiple of 64 bytes (32 fp16 elements)",
    fails("q38", "M5 Max", 26, note="131 wide fails, 160 runs"),
    runs("maderix", "M4", 15, note="80 wide"),
    runs("rustane", "M3 Ultra", 26, note="multiples of 16"),
)
def row_granule(subject: Subject) -> Found:
    """a row of {name} has {bytes} bytes, no multiple of 64"""
    for port in (*_surfaces(subject.inputs), *_surfaces(subject.outputs)):
        if port.width > LANES and port.row_bytes % ROW_BYTES:
            yield hit(port.place, name=port.name, bytes=port.row_bytes)
            return


@rule(
    "S6",
    "allocate every input surface as large as the largest (surfaces='uniform_largest')",
    fails("Orion", "M4 Max", 15),
    fails("maderix", "M4", 15, note="multi-input fails"),
    fails("maderix issue 47", "M1", 26, note="unless strictly ascending"),
    runs("maderix", "M4", 15, note="a small mask beside query, key and value"),
    runs("maderix issue 22", "M3 Ultra", 26, note="weights as inputs of matmul"),
    runs("field guide", "M3 Max", 26, note="names in byte order"),
    runs("q38", "M5 Max", 26),
    orion=18,
)
def input_sizes(subject: Subject) -> Found:
    """input surfaces of different sizes in bytes ({sizes}): evaluation ends in 0x1d"""
    ports = _surfaces(subject.inputs)
    if subject.surfaces == OWN_SIZE and _differ(ports):
        yield hit(ports[0].place, reports=_RANK_3 if _below_rank_4(ports) else None, sizes=_sizes(ports))


_RANK_3 = (
    fails("Orion", "M4 Max", 15, note="tensors of rank 4"),
    runs("dev-erik", "M4 Max", 15, note="matmul of two inputs of rank 3"),
)


def _below_rank_4(ports: tuple[TextPort, ...]) -> bool:
    return all(len(port.shape) < 4 for port in ports)


@rule(
    "S7",
    "declare and bind the inputs in byte order of their names, capitals first, or bind by name",
    wrong("Orion", "M4 Max", 15),
    fails("field guide", "M3 Max", 26, note="x smaller than W, bound in the wrong order"),
    wrong("q38", "M5 Max", 26, note="wimg before x"),
    orion=19,
)
def input_order(subject: Subject) -> Found:
    """surfaces are bound to the inputs in the order {bound}, not as declared: {declared}{effect}"""
    names = [port.name for port in subject.inputs]
    bound = binding_order(names)
    if names == bound:
        return
    sizes = {port.name: port.nbytes for port in _surfaces(subject.inputs)}
    short = [
        name
        for bound_name, name in zip(names, bound)
        if subject.surfaces == OWN_SIZE and sizes.get(bound_name, 0) < sizes.get(name, 0)
    ]
    first = next(port for port, name in zip(subject.inputs, bound) if port.name != name)
    words: dict[str, Any] = {"bound": ", ".join(bound), "declared": ", ".join(names)}
    if short and _below_rank_4(subject.inputs):
        yield hit(first.place, reports=_RANK_3, effect="", **words)
    elif short:
        effect = f"; {short[0]} then gets a surface that is too small (0x1d)"
        yield hit(first.place, reports=_UNEQUAL, effect=effect, **words)
    elif not _interchangeable(subject):
        yield hit(first.place, reports=_EQUAL, effect="", **words)


def _interchangeable(subject: Subject) -> bool:
    """True where swapping the inputs changes nothing: two of one type, which only meet in one add, mul, max or min."""
    values = subject.graph.main.inputs
    if len(values) != 2 or values[0].type != values[1].type:
        return False
    users = {user for value in values for user in value.users}
    return len(users) == 1 and next(iter(users)).type in ("add", "mul", "maximum", "minimum")


_EQUAL = (
    wrong("Orion", "M4 Max", 15, tested=True),
    wrong("q38", "M5 Max", 26, note="wimg before x", tested=True),
    runs("Espresso", "M3 Max", 15, note="used so; how it binds is not said"),
    runs("dev-erik", "M4 Max", 15, note="used so; how it binds is not said"),
)
_UNEQUAL = (
    fails("field guide", "M3 Max", 26, note="x smaller than W"),
    fails("Orion", "M4 Max", 15),
    runs("maderix", "M4", 15, note="a small mask beside query, key and value"),
)


@rule(
    "S9",
    "split the tensor along that axis, or reshape it so that the axis is shorter",
    refused("maderix issue 26", "M4 Pro", None, note="151,936 rows"),
    refused("rustane", "M3 Ultra", 26, note="17,920 wide; 16,384 runs"),
    refused("ANEForge", "M1", None, note="16,385"),
)
def surface_extent(subject: Subject) -> Found:
    """{value} is {size} long along {axis}, and {chip} takes {limit}: a raw program has no host part for it"""
    chip = subject.system.chip
    if chip is None:
        return
    reported = set()
    for statement in subject.statements:
        words = beyond_extent(statement.op, chip)
        if words is not None and words["value"] not in reported:
            reported.add(words["value"])
            yield hit(_place(subject, words["value"], statement.place), chip=chip.name, **words)
    if not reported and chip.generation.max_width > WIDEST_BEFORE_H16:
        for port in (*_surfaces(subject.inputs), *_surfaces(subject.outputs)):
            if port.width > WIDEST_BEFORE_H16:
                words = {"value": port.name, "size": port.width, "axis": "W", "limit": chip.generation.max_width}
                yield hit(port.place, reports=_WIDE, chip=chip.name, **words)


_WIDE = (
    refused("rustane", "M3 Ultra", 26, note="17,920 wide"),
    runs("table of Apple's compiler", "M4", None, note="65,536 from H16 on"),
)


def _place(subject: Subject, name: str, other: TextPlace) -> TextPlace:
    """Place of an input's declaration; elsewhere the statement."""
    return next((port.place for port in subject.inputs if port.name == name), other)


@rule(
    "S10",
    "use matmul, or split the channels over several convolutions",
    refused("maderix", "M4", 15, note="32,000 input channels; 8,192 run"),
    refused("Orion", "M4 Max", 15),
    refused("q38", "M5 Max", 26, note="124,160 output channels; 62,080 run"),
    orion=16,
)
def conv_channels(subject: Subject) -> Found:
    """a convolution from {inputs} to {outputs} channels{known}"""
    for statement in subject.calls("conv"):
        x, y = statement.shape("x"), tuple(statement.op.outputs[0].shape)
        if len(x) < 3 or None in (x[1], y[1]):
            continue
        words: dict[str, Any] = {"inputs": x[1], "outputs": y[1], "known": ""}
        if x[1] >= CONV_INPUTS_REFUSED or y[1] > MOST_CHANNELS:
            yield hit(statement.place, **words)
        elif x[1] > CONV_INPUTS_KNOWN:
            words["known"] = ": 8,192 inputs run, 32,000 are refused, between them nobody measured"
            yield hit(statement.place, reports=_BETWEEN, **words)


_BETWEEN = (refused("maderix", "M4", 15, note="32,000"), runs("dev-erik", "M4 Max", 15, note="8,192"))


@rule(
    "S13",
    "give each output a surface of its own size",
    fails("q38", "M5 Max", 26),
    runs("Orion", "M4 Max", 15, note="all as large as the largest"),
)
def narrow_output(subject: Subject) -> Found:
    """{name} is smaller than the surface that it gets: evaluation ends in 0x1d on M5"""
    ports = _surfaces(subject.outputs)
    if subject.surfaces == UNIFORM and subject.system.is_from("h17") and _differ(ports):
        smallest = min(ports, key=lambda port: port.nbytes)
        yield hit(smallest.place, name=smallest.name)


PAD_CONCAT_RUNS, PAD_CONCAT_REFUSED = 9_216, 11_264


@rule("S14", "return two outputs", refused("q38", "M5 Max", 26, note="9,216 channels run, 11,264 are refused"))
def pad_as_concat(subject: Subject) -> Found:
    """pads and an add join {channels} channels, and beyond 9,216 that is refused"""
    for statement in subject.calls("add"):
        makers = [v.op for v in statement.op.operands() if not v.is_constant]
        shape = tuple(statement.op.outputs[0].shape)
        if len(shape) == 4 and shape[1] > PAD_CONCAT_RUNS and makers and all(m and m.type == "pad" for m in makers):
            between = (*_BETWEEN_PADS,) if shape[1] < PAD_CONCAT_REFUSED else None
            yield hit(statement.place, reports=between, channels=shape[1])


_BETWEEN_PADS = (refused("q38", "M5 Max", 26, note="11,264"), runs("q38", "M5 Max", 26, note="9,216"))


@rule(
    "S15",
    "keep every partial sum below 32752: scale the operands by a power of two",
    wrong("ANEForge, M6 study", "M1, M4, M5, M6", None),
    evidence=Evidence.SILICON,
)
def constant_overflow(subject: Subject) -> Found:
    """{name} multiplies by {value}, and sums beyond 32752 become infinities"""
    for statement in subject.calls("mul"):
        for param in ("x", "y"):
            value = statement.value(param)
            if value is not None and value.constant is not None and value.rank == 0 and not value.constant.source:
                number = float(value.data)
                if math.isfinite(number) and abs(number) >= 2.0**15:
                    yield hit(statement.place_of(param), name=statement.name, value=f"{number:g}")
