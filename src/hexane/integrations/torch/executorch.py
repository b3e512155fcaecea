"""A partitioner for ExecuTorch, ahead of time: what the engine takes of an edge program becomes a delegate.

    from hexane.integrations.torch.executorch import HexanePartitioner
    edge = to_edge_transform_and_lower(torch.export.export(model, inputs), partitioner=[HexanePartitioner(chip="M1")])

The bytes of each delegate are a ``.hexane`` package, which ``hexane.load_program`` reads and any device runs. There is
no delegate for ExecuTorch's own runtime: a ``.pte`` file with such a part runs where one is written.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hexane.errors import UnsupportedError

try:
    from executorch.exir.backend.backend_details import BackendDetails, PreprocessResult
    from executorch.exir.backend.compile_spec_schema import CompileSpec
    from executorch.exir.backend.partitioner import DelegationSpec, Partitioner, PartitionResult
    from executorch.exir.backend.utils import tag_constant_data
except ImportError as error:
    raise UnsupportedError(
        f"the partitioner needs executorch, which is not installed ({error.name})", hint="pip install executorch"
    ) from error

import numpy as np
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner

import hexane
from hexane.frontends.aten.node import mil_type
from hexane.frontends.aten.translate import translate
from hexane.frontends.torch import constants_of
from hexane.integrations.torch.parts import Supported, survey

__all__ = ["HexaneBackend", "HexanePartitioner"]


class HexaneBackend(BackendDetails):
    """Compiles one part: its bytes are a ``.hexane`` package."""

    @staticmethod
    def preprocess(edge_program: Any, compile_specs: list[CompileSpec]) -> PreprocessResult:
        """The part's program. HexaneError where it cannot be compiled."""
        chips = [spec.value.decode() for spec in compile_specs if spec.key == "chip"]
        constants, _ = constants_of(edge_program)
        graph, _ = translate(edge_program.graph, constants)
        program = hexane.compile(graph, chip=chips[0] if chips else "M1")
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "part.hexane"
            program.save(path)
            return PreprocessResult(processed_bytes=path.read_bytes())


def _stand_ins(program: Any) -> dict[str, np.ndarray]:
    """Ones in the place of weights: a partitioner sees their shapes only."""
    signature = program.graph_signature
    inputs = {
        **signature.inputs_to_parameters,
        **signature.inputs_to_buffers,
        **signature.inputs_to_lifted_tensor_constants,
    }
    stand_ins = {}
    for node in program.graph.nodes:
        if node.op == "placeholder" and node.name in inputs:
            type_ = mil_type(node.meta["val"])
            stand_ins[node.name] = np.ones(type_.shape, type_.carrier)
    return stand_ins


class HexanePartitioner(Partitioner):
    """Tags what the engine of a chip takes.

    Parts without any engine work stay with ExecuTorch; ``left`` says for every operator that stays why.
    """

    def __init__(self, chip: str = "M1") -> None:
        super().__init__()
        self.chip = chip
        self.left: dict[str, str] = {}

    def partition(self, exported_program: Any) -> PartitionResult:
        """The program with a tag on the nodes of each part."""
        module = exported_program.graph_module
        supported, refused = survey(module.graph, _stand_ins(exported_program))
        self.left = {name: f"{operator}: {why}" for name, (operator, why) in refused.items()}
        spec = DelegationSpec(HexaneBackend.__name__, [CompileSpec("chip", self.chip.encode())])
        tags = {}
        parts = CapabilityBasedPartitioner(module, Supported(supported), allows_single_node_partition=True)
        for number, part in enumerate(parts.propose_partitions()):
            tag = f"hexane_{number}"
            for node in part.nodes:
                node.meta["delegation_tag"] = tag
            tags[tag] = spec
        tag_constant_data(exported_program)
        return PartitionResult(tagged_exported_program=exported_program, partition_tags=tags)
