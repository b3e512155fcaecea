"""Every operation says how gradients pass it, or why they do not."""

from __future__ import annotations

import pytest

from hexane.codegen.recipes.registry import all_recipes
from hexane.codegen.select import load_recipes
from hexane.graph.gradient import reason_of, rules_of
from hexane.graph.registry import DOMAINS, all_specs, lookup
from hexane.graph.types import ANY, FLOATS

SPECS = [spec for spec in all_specs() if not spec.name.startswith("onnx.")]


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: f"{spec.name}-{spec.since}")
def test_a_derivative_or_a_reason(spec):
    rules = rules_of(spec)
    assert rules or (isinstance(spec.derivative, str) and spec.derivative), spec.name
    assert set(rules) <= set(spec.by_name)
    for param in spec.params:
        if rules and param.is_tensor and (spec.domains.get(param.group) or DOMAINS.get(param.group, ANY)) & FLOATS:
            assert param.name in rules, f"{param.name} of {spec.name} may be a float and has no rule"


def test_what_the_engine_computes():
    """Ops with a recipe have derivatives, but those whose results are truth values or whole numbers."""
    load_recipes()
    heads = sorted({head for recipe in all_recipes() for head in recipe.heads})
    assert len(heads) > 50
    reasons = {head: reason_of(lookup(head)) for head in heads if not rules_of(lookup(head))}
    assert all("constant between" in reason or head == "engine.table" for head, reason in reasons.items()), reasons
