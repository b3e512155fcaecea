"""Search for the cheapest variant of a program: whole maps, or some of its tasks in stripes of rows."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass

from hexane.codegen.memory.analysis import StripeAnalysis
from hexane.codegen.memory.facts import BOTH, OFF
from hexane.codegen.memory.placement import resident
from hexane.codegen.memory.selection import ResidencyProgram, room_of
from hexane.codegen.memory.striping import EAGER_GAIN, LEAST_GAIN, MOST_LOSS, Cuts, StripedRun, Striping
from hexane.codegen.memory.traffic import Cost, Price, total
from hexane.codegen.memory.values import found_in_l2
from hexane.codegen.operands import RESULT, SECOND, SOURCE, elements
from hexane.codegen.plan import Plan

ROUNDS = 3
"""How often stripes are tried with fewer pieces."""
TRIES = 6
"""Tensors of which it is tried whether they should rather stay."""
PATIENCE = 2
"""How many tensors are tried in vain, one after the other."""
LEAST_SHARE = 0.01
"""Of all bytes moved: what a tensor has to move to be tried."""
STAYS = {SOURCE: OFF[SOURCE], SECOND: OFF[SECOND], RESULT: OFF[RESULT] | BOTH[RESULT]}
"""Side of a task -> the bits that say that an operand stays there, rather than being brought."""


@dataclass(frozen=True)
class Variant:
    """One way to write a program, what it is expected to cost, and the stripes that it has."""

    program: ResidencyProgram
    cost: Cost
    cuts: Cuts | None = None


def cheapest(
    program: ResidencyProgram, price: Price, take: Callable[[Cuts], ResidencyProgram] | None, *, tries: int = TRIES
) -> Variant | None:
    """The form of a program that costs least; None where it is as it is.

    ``take`` makes a program of cut plans; without it nothing is cut. At most ``tries`` tensors that go through DRAM are
    tried, one after the other, those first that move most: what would the program cost if this one stayed, others made
    room, and tasks went in stripes where it left them too little?
    """
    if len(program.plans) < 2 or not _moves(program):
        return None
    analysis = StripeAnalysis(
        program.target, program.plans, program.held, program.identity, program.stored, price, program.memo
    )
    slowest, best = total(expected(program, price)).us, _form(program, analysis, take)
    tried: set[tuple[Hashable, bool]] = set()
    in_vain = 0
    for _ in range(0 if program.policy.eager else tries):
        keys = ((key, late) for key in _spills(best, program) for late in (False, True))
        at = next((at for at in keys if at not in tried and (not at[1] or program.grows(at[0]))), None)
        if at is None or in_vain == PATIENCE:
            break
        tried.add(at)
        first, late = best.program.first | {at[0]}, best.program.late | ({at[0]} if at[1] else set())
        most = min(slowest, (1 + MOST_LOSS) * best.cost.us)
        other = _form(program.preferring(first, late), analysis, take, most)
        if other.cost.us <= most and other.cost.weighed() < best.cost.weighed():
            best, in_vain = other, 0
        else:
            in_vain += 1
    return best


def _moves(program: ResidencyProgram) -> bool:
    """True where a tensor goes through DRAM that could stay, or that stripes could keep: else nothing is to be won."""
    could = {value.key for value in program.candidates if value.size < room_of(program)}
    kernels = [(plan.kernel.source, i) for i, plan in enumerate(program.plans) if plan.kernel is not None]
    stay_there = {program.identity(source, i) for source, i in kernels if source is not None}
    for i, bits in enumerate(found_in_l2(program.choice[0], len(program.plans))):
        for end in program.held.ends[i]:
            if end.dma is None or bits & OFF[end.side]:
                continue
            key = program.identity(end.dma.buffer, i)
            if key in could or (key is not None and key not in stay_there and not program.stored(key).surface):
                return True
    return False


def _spills(form: Variant, program: ResidencyProgram) -> list[Hashable]:
    """Tensors that fit L2 and go through DRAM in a form, those first that move most; not those that move little."""
    moved: dict[Hashable, int] = {}
    plans = form.program.plans
    for i, bits in enumerate(found_in_l2(form.program.choice[0], len(plans))):
        for end in form.program.held.ends[i]:
            if end.dma is not None and not bits & STAYS[end.side]:
                key = form.program.identity(end.dma.buffer, i)
                moved[key] = moved.get(key, 0) + elements(end) * end.element
    could = (value.key for value in program.candidates if value.size < room_of(program))
    least = form.cost.bytes * LEAST_SHARE
    wanted = [key for key in could if moved.get(key, 0) > least and key not in form.program.first]
    return sorted(wanted, key=lambda key: -moved[key])  # of two that move as much the one that comes first


def _form(
    program: ResidencyProgram,
    analysis: StripeAnalysis,
    take: Callable[[Cuts], ResidencyProgram] | None,
    most: float = 0.0,
) -> Variant:
    """A program with runs of tasks in stripes where that is cheaper than whole maps through DRAM.

    What then stays in L2 is not known before the plans are cut: pieces that lose in the end are left whole, and so is
    everything if the program would be slower. A program that takes no more than ``most`` us is left as it is: pieces
    that lose may be what lets the first tensors stay.
    """
    price = analysis.price
    gain = EAGER_GAIN if program.policy.eager else LEAST_GAIN
    striping = Striping(analysis, program.intent, room_of(program), gain, program.first)
    pieces = striping.pieces() if take is not None else []
    for _ in range(ROUNDS):
        if not pieces or take is None:
            break
        cuts = striping.cut(pieces)
        if len(cuts.plans) > program.target.most_tasks:
            pieces = _fewer(pieces, len(cuts.plans) - program.target.most_tasks)
            continue
        name = tuple([(piece.first, piece.last, piece.count) for piece in pieces])
        cut = (analysis.cuts.get(name) or take(cuts)).preferring(program.first, program.late)
        analysis.cuts[name] = cut
        costs = expected(cut, price)
        if program.policy.eager or total(costs).us <= most:
            return Variant(cut, total(costs), cuts)
        better = winning(pieces, cuts, costs, expected(program, price))
        if better == pieces:
            return Variant(cut, total(costs), cuts)
        pieces = better
    return Variant(program, total(expected(program, price)))


def _fewer(pieces: list[StripedRun], over: int) -> list[StripedRun]:
    """Without those that save least for the tasks that they add, until there are ``over`` tasks less."""
    ranked = sorted(pieces, key=lambda p: p.saves / _adds(p))
    while ranked and over > 0:
        over -= _adds(ranked.pop(0))
    return sorted(ranked, key=lambda p: p.first)


def _adds(piece: StripedRun) -> int:
    return (piece.count - 1) * (piece.last - piece.first + 1)


def winning(pieces: list[StripedRun], cuts: Cuts, cut: list[Cost], whole: list[Cost]) -> list[StripedRun]:
    """The pieces that are worth it, by what each task of the cut program and of the whole one costs."""
    of_origin = [Cost(0.0, 0)] * len(whole)
    for origin, cost in zip(cuts.origins, cut):
        of_origin[origin] = of_origin[origin].plus(cost)
    runs, lost = [], []
    for piece in pieces:
        striped = total(of_origin[piece.first : piece.last + 1])
        plain = total(whole[piece.first : piece.last + 1])
        if striped.weighed() < plain.weighed():
            runs.append(piece)
            lost.append(striped.us - plain.us)
    slower = total(cut).us - total(whole).us
    if len(runs) < len(pieces) or slower <= 0:
        return runs
    losers = sorted(zip(lost, runs), key=lambda row: -row[0])
    while losers and slower > 0:
        loss, piece = losers.pop(0)
        runs.remove(piece)
        slower -= max(loss, 0)
    return runs


def expected(program: ResidencyProgram, price: Price) -> list[Cost]:
    """Cost of each task if every value that is chosen to stay finds its place."""
    if "expected" not in vars(program):
        vars(program)["expected"] = program.memo.costs_of(_all_resident(program), price)
    costs: list[Cost] = vars(program)["expected"]
    return costs


def _all_resident(program: ResidencyProgram) -> list[Plan]:
    """The tasks with the operands in L2 that are chosen to be there, as far as their prices go: wherever they are."""
    made, facts = list(program.plans), program.facts
    bits = found_in_l2(program.choice[0], len(made))
    new = {i: made[i] for i, found in enumerate(bits) if found and found not in facts[i].turned}
    for value in program.choice[0] if new else ():
        for end, region in zip(value.ends, value.regions):
            if end.index in new:
                new[end.index] = resident(new[end.index], end, region, value)
    for i, plan in new.items():
        facts[i].turned[bits[i]] = plan
    return [facts[i].turned[found] if found else made[i] for i, found in enumerate(bits)]
