"""Tasks as a compiler writes them, from what they mean: fields by name in, words out (H14 and later).

>>> from hexane.isa.compose import TaskFields, compose
>>> (task,) = compose("h14", [TaskFields({"Common.InDim.Win": 8, "Common.OutDim.Wout": 8, "PE.Cfg.OpMode": 1})])
>>> task.written("PE.Cfg"), task.written("PE.PreScale")
(True, False)

What a task's own fields and its position in the program decide is added here: tags, header words, the mask of live L2
pages, which registers are left out, records, filler.
"""

from hexane.isa.compose.tasks import TaskFields, compose

__all__ = ["TaskFields", "compose"]
