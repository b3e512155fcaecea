"""``onnx.backend.base`` on the engine: whatever runs ONNX back ends runs this one, ONNX's own test runner too.

from onnx.backend.test import BackendTest
runner = BackendTest(hexane.onnx_backend, __name__)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hexane.codegen import compile
from hexane.counts import counted
from hexane.errors import HexaneError, UnsupportedError, UsageError
from hexane.formats.onnx import library, load
from hexane.formats.onnx.file import import_onnx, read_file
from hexane.integrations.onnx.session import ProviderOptions
from hexane.integrations.onnx.signature import inward, outward, signature_of
from hexane.integrations.onnx.strict import engine_alone
from hexane.program import Program

import_onnx()

from onnx.backend.base import Backend, BackendRep, namedtupledict  # noqa: E402
from onnx.backend.test.runner import BackendIsNotSupposedToImplementIt  # noqa: E402

DEVICES = ("CPU", "ANE")
"""Both are the device that the options name: the emulated engine, unless told otherwise."""


class Refused(UnsupportedError, BackendIsNotSupposedToImplementIt):
    """A model that hexane does not take; ONNX's test runner counts it as not implemented."""


class HexaneRep(BackendRep):
    """A compiled model, ready to run as often as needed."""

    def __init__(self, program: Program, options: ProviderOptions, elements: Mapping[str, str]) -> None:
        self.program = program
        self._elements = elements
        self._session = program.on(options.device, options.level)
        self._names = [port.name for port in program.outputs]
        self._outputs = namedtupledict("Outputs", self._names)

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """The outputs in order, which have their names too.

        Parameters
        ----------
        inputs : arrays in the order of the model's inputs, a dict of them by name, or one array.

        Raises
        ------
        UsageError : inputs that the model does not have.
        """
        feed = _by_name([port.name for port in self.program.inputs], inputs)
        results = self._session.run(
            {name: inward(value) if isinstance(value, np.ndarray) else value for name, value in feed.items()}
        )
        return self._outputs(*(outward(results[name], self._elements[name]) for name in self._names))


class HexaneBackend(Backend):
    """The back end. Keywords of every call: ``chip``, ``device`` by hexane's name as ``hexane_device``, ``level``,
    ``strict`` (refuse a model of which anything would run on the host)."""

    @classmethod
    def is_compatible(cls, model: Any, device: str = "CPU", **kwargs: Any) -> bool:
        """True where `prepare` takes the model."""
        try:
            cls.prepare(model, device, **kwargs)
        except HexaneError:
            return False
        return True

    @classmethod
    def prepare(cls, model: Any, device: str = "CPU", **kwargs: Any) -> HexaneRep:
        """Check with ONNX's checker, compile and load.

        Raises
        ------
        Refused : hexane lacks an op; with ``strict`` also where anything would run on the host.
        FormatError : no well-formed model. UsageError : a device or an option that there is not.
        """
        if not cls.supports_device(device):
            raise UsageError(f"the back end has no device {device!r}", hint=f"one of {', '.join(DEVICES)}")
        options = _options(kwargs)
        onnx = import_onnx()
        if isinstance(model, onnx.ModelProto):
            _check(model)
        try:
            elements = {entry.name: entry.element for entry in signature_of(read_file(model)).outputs}
            program = compile(load(model), chip=options.chip)
            if options.strict:
                engine_alone(program)
        except UnsupportedError as error:
            refused = Refused(error.message, where=error.where, hint=error.hint, code=error.code)
            refused.__dict__.update(error.__dict__)
            raise refused from error
        return HexaneRep(program, options, elements)

    @classmethod
    def run_model(cls, model: Any, inputs: Any, device: str = "CPU", **kwargs: Any) -> tuple[Any, ...]:
        """`prepare` and run once."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: Any,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[Any, Sequence[int]]] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """One node by itself.

        Its first input arrives at run time; whole numbers among the others (shapes, axes, indices) are known when it
        is compiled, as the graph is static.

        Parameters
        ----------
        inputs : arrays in the node's order, None where it leaves one out, or a dict by name.
        outputs_info : dtype and shape of every output, where ONNX's inference does not find them.
        kwargs : ``opset_version``, the newest by default, and what `prepare` takes.
        """
        onnx = import_onnx()
        version = kwargs.pop("opset_version", None) or onnx.defs.onnx_opset_version()
        named = [name for name in node.input if name]
        feed = _by_name(named, inputs if isinstance(inputs, Mapping) else [v for v in _listed(inputs) if v is not None])
        arrays = {name: np.asarray(feed[name]) for name in dict.fromkeys(named) if name in feed}
        if missing := [name for name in named if name not in arrays]:
            raise UsageError(f"input {missing[0]!r} of {node.op_type} is missing", hint=f"its inputs are {named}")
        constants = {name for i, (name, array) in enumerate(arrays.items()) if i and array.dtype.kind in "iu"}
        helper, as_code = onnx.helper, onnx.helper.np_dtype_to_tensor_dtype
        outputs = []
        for i, name in enumerate(name for name in node.output if name):
            if outputs_info is None:
                outputs.append(onnx.ValueInfoProto(name=name))
            else:
                dtype, shape = outputs_info[i]
                outputs.append(helper.make_tensor_value_info(name, as_code(np.dtype(dtype)), list(shape)))
        graph = helper.make_graph(
            [node],
            "node",
            [
                helper.make_tensor_value_info(n, as_code(a.dtype), a.shape)
                for n, a in arrays.items()
                if n not in constants
            ],
            outputs,
            [onnx.numpy_helper.from_array(arrays[name], name) for name in constants],
        )
        imports = [helper.make_opsetid("", version)]
        if node.domain:
            imports.append(helper.make_opsetid(node.domain, 1))
        model = helper.make_model(graph, opset_imports=imports)
        if outputs_info is None:
            model = _inferred(model)
        return cls.run_model(model, {n: a for n, a in arrays.items() if n not in constants}, device, **kwargs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """ "CPU" and "ANE", with or without a number behind a colon."""
        return device.partition(":")[0] in DEVICES


is_compatible = HexaneBackend.is_compatible
prepare = HexaneBackend.prepare
run_model = HexaneBackend.run_model
run_node = HexaneBackend.run_node
supports_device = HexaneBackend.supports_device

_RUNNERS_OWN = {"rtol", "atol"}
"""Keywords of ONNX's test runner that are not for the back end."""


def _options(options: Mapping[str, Any]) -> ProviderOptions:
    words = {name: value for name, value in options.items() if name not in _RUNNERS_OWN}
    if "hexane_device" in words:
        words["device"] = words.pop("hexane_device")
    return ProviderOptions.of(words)


def _check(model: Any) -> None:
    """ONNX's own checker, in the process that its C++ has for itself."""
    try:
        library.call("check", model.SerializeToString(), where="ONNX model")
    except library.LibraryRefusal as error:
        raise UsageError(f"ONNX's checker refuses the model: {error}") from None


def _inferred(model: Any) -> Any:
    try:
        return type(model).FromString(library.call("infer", model.SerializeToString(), where="ONNX node"))
    except library.LibraryRefusal as error:
        raise UsageError(f"the types of the results are not known ({error})", hint="give outputs_info") from None


def _listed(inputs: Any) -> list[Any]:
    return list(inputs) if isinstance(inputs, list | tuple) else [inputs]


def _by_name(names: Sequence[str], inputs: Any) -> dict[str, Any]:
    if isinstance(inputs, Mapping):
        return dict(inputs)
    values = _listed(inputs)
    if len(values) != len(names):
        raise UsageError(
            f"{counted(len(values), 'input')} given, the model has {len(names)}", hint=f"they are {list(names)}"
        )
    return dict(zip(names, values))
