"""Checks of a task that are made once for all tasks with the same values in the fields that they read.

Such a check is a function of a task's registers, and of nothing else: which fields it asks for follows from the values
that it has met, so that a task with the same values in just these fields gets the same answer. Refusals are not kept:
they name the task. ``Registers.channel`` counts as a field.
Whatever else differs between tasks is refused to such a check, since it is no part of the key.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import wraps
from typing import Any, TypeVar

from hexane.emulator.registers import Registers
from hexane.errors import EmulationError

Check = TypeVar("Check", bound=Callable[..., Any])
ALWAYS = ("Common.TaskInfo.NID", "Common.Cfg.PEKind")
"""Fields that count for every check."""
UNNOTED = ("descriptor", "values", "index")
"""What differs between tasks with the same values in the fields that a check reads; only messages name the task."""
MOST_ANSWERS = 4096
"""Of one check; with more it begins anew."""


class _Noting(Registers):
    """Registers that note which of them were asked for."""

    asked: dict[str, None]
    _task: Registers

    @classmethod
    def of(cls, r: Registers) -> _Noting:
        """The same registers, of which nothing was asked yet."""
        noting = cls.__new__(cls)
        noting.__dict__.update(r.__dict__)
        for name in UNNOTED:
            del noting.__dict__[name]
        noting.asked, noting._task = {}, r
        return noting

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"a check that is made once reads {name}: it may ask for fields by name only")

    def __getitem__(self, name: str) -> int:
        self.asked[name] = None
        return self._task[name]

    def several(self, names: tuple[str, ...]) -> tuple[int, ...]:
        self.asked |= dict.fromkeys(names)
        return self._task.several(names)

    def error(self, *args: Any, **options: Any) -> EmulationError:
        return self._task.error(*args, **options)


Answers = dict[tuple[int, ...], Any]
"""The answers to tasks for which a check read the same fields, by the values there."""


def once(check: Check) -> Check:
    """The check, which takes registers and numbers that can be keys, and gives something that nobody changes."""
    answers_by_key: dict[Hashable, dict[tuple[str, ...], Answers]] = {}

    @wraps(check)
    def checked(r: Registers, *args: Hashable) -> Any:
        answers = answers_by_key.get((r.generation, args))
        if answers is None:
            answers = answers_by_key[r.generation, args] = {}
        for names, some in answers.items():
            answer = some.get(r.several(names), answers_by_key)
            if answer is not answers_by_key:
                return answer
        noting = _Noting.of(r)
        answer = check(noting, *args)
        if sum(map(len, answers.values())) >= MOST_ANSWERS:
            answers.clear()
        names = (*noting.asked, *ALWAYS)
        answers.setdefault(names, {})[r.several(names)] = answer
        return answer

    return checked  # type: ignore[return-value]
