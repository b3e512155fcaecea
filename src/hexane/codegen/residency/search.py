"""Which form of a program is the cheapest: whole maps, or some of its tasks in bands of rows."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy

from hexane.codegen.choices import choosing
from hexane.codegen.residency.depth import EAGER_GAIN, LEAST_GAIN, Cuts, Depth, Piece
from hexane.codegen.residency.moved import Cost, Price, costs_of, total
from hexane.codegen.residency.stay import Program, eager, room_of, turn

ROUNDS = 3
"""How often bands are tried with fewer pieces."""


def in_bands(program: Program, price: Price, take: Callable[[Cuts], Program]) -> tuple[Program, Cuts] | None:
    """The program with runs of tasks in bands where that is cheaper than whole maps through DRAM; None if nowhere.

    ``take`` makes a program of cut plans. What then stays in L2 is not known before they are cut: pieces that lose in
    the end are left whole, and so is everything if the program would be slower.
    """
    if len(program.plans) < 2:
        return None
    at_any_price = eager()
    stays, _ = program.choice
    with choosing(program.target.choices):
        depth = Depth(
            program.plans,
            program.held,
            program.identity,
            program.stored,
            stays,
            price,
            room_of(program),
            EAGER_GAIN if at_any_price else LEAST_GAIN,
        )
        pieces = depth.pieces()
        whole = expected(program, price) if pieces else []
        for _ in range(ROUNDS):
            if not pieces:
                return None
            cuts = depth.cut(pieces)
            if len(cuts.plans) > program.target.most_tasks:
                pieces = _fewer(pieces, len(cuts.plans) - program.target.most_tasks)
                continue
            cut = take(cuts)
            if at_any_price:
                return cut, cuts
            better = winning(pieces, cuts, expected(cut, price), whole)
            if better == pieces:
                return cut, cuts
            pieces = better
    return None


def _fewer(pieces: list[Piece], over: int) -> list[Piece]:
    """Without those that save least for the tasks that they add, until there are ``over`` tasks less."""
    kept = sorted(pieces, key=lambda p: p.saves / _adds(p))
    while kept and over > 0:
        over -= _adds(kept.pop(0))
    return sorted(kept, key=lambda p: p.first)


def _adds(piece: Piece) -> int:
    return (piece.count - 1) * (piece.last - piece.first + 1)


def winning(pieces: list[Piece], cuts: Cuts, cut: list[Cost], whole: list[Cost]) -> list[Piece]:
    """The pieces that are worth it, by what each task of the cut program and of the whole one costs."""
    of_origin = [Cost(0.0, 0)] * len(whole)
    for origin, cost in zip(cuts.origins, cut):
        of_origin[origin] = of_origin[origin].plus(cost)
    kept, lost = [], []
    for piece in pieces:
        banded = total(of_origin[piece.first : piece.last + 1])
        plain = total(whole[piece.first : piece.last + 1])
        if banded.weighed() < plain.weighed():
            kept.append(piece)
            lost.append(banded.us - plain.us)
    slower = total(cut).us - total(whole).us
    if len(kept) < len(pieces) or slower <= 0:
        return kept
    losers = sorted(zip(lost, kept), key=lambda row: -row[0])
    while losers and slower > 0:
        loss, piece = losers.pop(0)
        kept.remove(piece)
        slower -= max(loss, 0)
    return kept


def expected(program: Program, price: Price) -> list[Cost]:
    """Cost of each task if every value that is chosen to stay finds its place."""
    stays, _ = program.choice
    made = [copy(plan) for plan in program.plans]
    for value in stays:
        for end, region in zip(value.ends, value.regions):
            turn(made[end.index], end, region, value)
    return costs_of(made, price)
