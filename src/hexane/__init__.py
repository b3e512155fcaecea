"""hexane: an open toolchain for the Apple Neural Engine.

The names below are the public API. Each is imported when it is first used, so that ``import hexane`` stays cheap; type
checkers and editors see plain imports.
"""

from __future__ import annotations

from importlib import import_module

from hexane.later import TYPE_CHECKING, loaded

if TYPE_CHECKING:
    # isort: off
    from hexane import arithmetic as arithmetic
    from hexane import chips as chips
    from hexane import cli as cli
    from hexane import codegen as codegen
    from hexane import coreml as coreml
    from hexane import emulator as emulator
    from hexane import formats as formats
    from hexane import frontends as frontends
    from hexane import graph as graph
    from hexane import image as image
    from hexane import integrations as integrations
    from hexane import isa as isa
    from hexane import kernels as kernels
    from hexane import language as language
    from hexane import lowering as lowering
    from hexane import mil as mil
    from hexane import numerics as numerics
    from hexane import onnx_backend as onnx_backend
    from hexane import passes as passes
    from hexane import program as program
    from hexane import report as report
    from hexane import restrictions as restrictions
    from hexane import runtime as runtime
    from hexane import session as session
    from hexane import studies as studies
    from hexane import timing as timing
    from hexane import torch as torch
    from hexane import train as train
    from hexane.codegen import compile as compile
    from hexane.emulator import emulate as emulate
    from hexane.errors import HexaneError as HexaneError
    from hexane.formats.mil import parse_mil as parse_mil
    from hexane.frontends.networks import load as load
    from hexane.frontends.torch import from_torch as from_torch
    from hexane.graph.gradient import grad as grad
    from hexane.image import build_image as build_image
    from hexane.image import open_image as open_image
    from hexane.frontends.jax import from_jax as from_jax
    from hexane.integrations.onnx import InferenceSession as InferenceSession
    from hexane.frontends.tinygrad import from_tinygrad as from_tinygrad
    from hexane.program import load_program as load_program
    from hexane.session.check import check as check
    from hexane.report.job import compare as compare
    from hexane.report.job import run as run
    from hexane.restrictions import check_mil as check_mil
    from hexane.runtime.devices import devices as devices
    from hexane.studies.compress import compress as compress
    from hexane.studies.evaluation.evaluate import evaluate as evaluate
    from hexane.timing.estimate import estimate as estimate
    # isort: on

__version__ = "0.1.0"

_API = {
    "HexaneError": "hexane.errors",
    "open_image": "hexane.image",
    "build_image": "hexane.image",
    "emulate": "hexane.emulator",
    "grad": "hexane.graph.gradient",
    "load": "hexane.frontends.networks",
    "parse_mil": "hexane.formats.mil",
    "from_jax": "hexane.frontends.jax",
    "from_tinygrad": "hexane.frontends.tinygrad",
    "from_torch": "hexane.frontends.torch",
    "InferenceSession": "hexane.integrations.onnx",
    "compile": "hexane.codegen",
    "load_program": "hexane.program",
    "check": "hexane.session.check",
    "compare": "hexane.report.job",
    "run": "hexane.report.job",
    "check_mil": "hexane.restrictions",
    "devices": "hexane.runtime.devices",
    "estimate": "hexane.timing",
    "compress": "hexane.studies",
    "evaluate": "hexane.studies.evaluation",
}
"""Where each name of the public API stands."""

_PACKAGES = frozenset(
    """
    arithmetic chips cli codegen coreml emulator formats frontends graph image integrations isa kernels language
    lowering mil numerics onnx_backend passes program report restrictions runtime session studies timing torch
    train
    """.split()
)

__all__ = ["__version__", *_API]

if not TYPE_CHECKING:  # a checker that saw it would take any name for one of ours

    def __getattr__(name: str) -> object:
        return import_module(f"hexane.{name}") if name in _PACKAGES else loaded(__name__, _API, name)


def __dir__() -> list[str]:
    return sorted({*__all__, *_PACKAGES, *(name for name in globals() if name.startswith("__"))})
