"""Epilogue of a neural engine task, as its plan says it: scalar factor, ReLU or table."""

from __future__ import annotations

from hexane.codegen.operations import NeNonlinear
from hexane.codegen.plan import Plan
from hexane.lowering.functions import KNOWN
from hexane.lowering.fusion import Epilogue


def apply(epilogue: Epilogue, plan: Plan) -> Plan:
    """Put an epilogue into a plan; the encoder rounds its factor to fp16."""
    plan = plan.computing(post_scale=epilogue.scale, nonlinear=NeNonlinear.RELU if epilogue.relu else NeNonlinear.NONE)
    if epilogue.table_name is not None:
        plan = plan.through(epilogue.table_name)
        if epilogue.table_name not in KNOWN or epilogue.numbers:
            plan = plan.inferred("a derived or fitted table behind sums")
    return plan
