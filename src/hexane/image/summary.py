"""Summary of an engine program as plain values: for ``hexane info`` and its ``--json``."""

from __future__ import annotations

from typing import Any

from hexane.errors import FormatError, UnsupportedError
from hexane.image.image import Image
from hexane.image.rebuild import follows_the_rule
from hexane.isa.describe import operation, shapes


def summary_of(image: Image) -> dict[str, Any]:
    """Generation, compiler, surfaces, tasks, kernels and sections; everything in it can be written as JSON."""
    text = image.ident.text or ""
    return {
        "generation": image.generation,
        "container": image.dialect,
        "laid_out_by_rule": follows_the_rule(image),
        "compiler": _compiler(image),
        "options": [line.strip() for line in text.splitlines()[2:]] if text else [],
        "input_path": image.ident.input_path if image.ident.text is None else None,
        "output_path": image.ident.output_path if image.ident.text is None else None,
        "procedure": image.procedure,
        "task_count": image.task_count,
        "text_bytes": len(image.contents.text),
        "const_bytes": image.constant_bytes,
        "scratch_bytes": image.scratch_bytes,
        "surfaces": [_surface(s) for s in image.surfaces] if image.dialect != "anec" or image.tasks else [],
        "tasks": _tasks(image),
        "sections": _sections(image),
        "symbol_count": len(image.symbols),
        "relocation_count": len(image.relocations),
        "unexplained_bytes": sum(len(rest.content) for rest in image.parts.remainders),
    }


def _compiler(image: Image) -> str:
    if image.dialect == "anec":
        return ""
    if image.ident.text is not None:
        return " ".join(image.ident.text.split("\n\t")[0].split())
    return "zin_ane_compiler v4.2.1" if image.dialect == "zin4" else "hexane"


def _surface(surface: Any) -> dict[str, Any]:
    return {
        "name": surface.name,
        "role": surface.role,
        "shape": list(surface.shape),
        "dtype": surface.dtype,
        "strides": list(surface.strides),
        "channel": surface.channel,
        "address": surface.address,
        "bytes": surface.nbytes,
    }


def _tasks(image: Image) -> list[dict[str, Any]]:
    try:
        tasks = image.tasks
    except (UnsupportedError, FormatError) as error:
        return [{"problem": str(error)}]
    kernels = {kernel.task: kernel for kernel in image.kernels}
    rows = []
    for index, task in enumerate(tasks):
        kernel = kernels.get(index)
        source, result = shapes(task)
        rows.append(
            {
                "task": index,
                "offset": task.offset,
                "words": task.layout.size,
                "operation": operation(task),
                "input": list(source),
                "output": list(result),
                "kernel": kernel.kind if kernel else None,
                "kernel_bytes": kernel.size if kernel else 0,
                "kernel_channel": kernel.channel if kernel else None,
            }
        )
    return rows


def _sections(image: Image) -> list[dict[str, Any]]:
    return [
        {
            "segment": segment.name,
            "section": section.name,
            "address": section.address,
            "bytes": section.size,
            "offset": section.offset if section.content else None,
        }
        for segment in image.segments
        for section in segment.sections
    ]
