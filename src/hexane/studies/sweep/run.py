"""A sweep's pieces, all jobs at all points over one stream, and its table."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hexane.errors import HexaneError
from hexane.lowering.formats import WeightFormat
from hexane.program import input_ports
from hexane.studies.compress import compress
from hexane.studies.evaluation.data import Data, open_data
from hexane.studies.evaluation.evaluate import LAYERS, Course, OnProgress, Until, accept, blocks_of, sample_pieces
from hexane.studies.evaluation.metrics import metric_named
from hexane.studies.evaluation.network import Network, NetworkForm, compile_piece, open_model, package_of
from hexane.studies.pieces import Counts, Piece, Result, Shared, Store, Workers, results, started
from hexane.studies.sweep.spec import Spec, SweepPoint
from hexane.timing import estimate

Job = Callable[[Shared, NetworkForm], Result]
"""What is asked of a network on a chip: a function that workers call; columns by name."""


def estimated(network: Shared, form: NetworkForm) -> Result:
    """Time and energy, predicted (``hexane.estimate``)."""
    graph = network.opened(pickle.loads)
    weighed = graph if form.weights == "fp16" else compress(graph, form.weights)
    estimate_made = estimate(weighed, form.chip, as_=str(dict(form.options).get("as_", "")))
    return {
        "latency_us": np.asarray(estimate_made.latency_us), "engine_us": np.asarray(estimate_made.engine_us),
        "energy_mj": np.asarray(estimate_made.energy_mj), "utilisation": np.asarray(estimate_made.utilisation),
        "bottleneck": np.asarray(estimate_made.bottleneck),
    }  # fmt: skip


@dataclass
class _Place:
    """A point on its way: its network, and what is known of it."""

    point: SweepPoint
    network: Network | None = None
    form: NetworkForm = field(default_factory=NetworkForm)
    course: Course | None = None
    given: dict[str, Result] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)


def sweep(
    spec: Spec,
    store: Store,
    where: Workers | None = None,
    *,
    jobs: Mapping[str, Job] | None = None,
    on_progress: OnProgress | None = None,
) -> list[dict[str, Any]]:
    """The table of a sweep: one row for each point, in the order of the file.

    jobs : functions of the jobs by name, more than ``estimate``, ``compile`` and ``evaluate``, which are known here.
    on_progress : hears "pieces", how many are done, of how many so far known.

    What fails at a point is in its row under ``error``; the others go on. The same rows come out however the work was
    divided, in whatever order its pieces ended.
    """
    all_jobs: dict[str, Job] = {"estimate": estimated, **(jobs or {})}
    cluster = where or Workers()
    with started(cluster):
        places = _opened(spec)
        _run(places, spec, store, cluster, all_jobs, on_progress)
    return [_row(place, spec) for place in places]


def _run(
    places: list[_Place], spec: Spec, store: Store, cluster: Workers, all_jobs: Mapping[str, Job],
    on_progress: OnProgress | None,
) -> None:  # fmt: skip
    """Every place's pieces, computed and taken."""
    count, total = 0, sum(_count(place, spec) for place in places)

    def pieces() -> Iterator[Piece | None]:
        going = [place for place in places if place.network is not None]
        for place in going:
            assert place.network is not None
            for job in spec.jobs:
                if job in all_jobs:
                    yield _job_piece(place.network, place.form, job, all_jobs[job]).tagged((place, job))
            if "compile" in spec.jobs or (place.course is not None and place.form.level == "engine"):
                yield compile_piece(place.network, place.form).tagged((place, "compile"))
        for group in _groups(going):
            while any(course.program is None and course.error is None for course in group):
                yield None
            yield from sample_pieces([course for course in group if course.error is None], _layers(group[0], going))

    with closing(results(pieces(), store, cluster)) as outcomes:
        for piece, outcome in outcomes:
            _take(piece, outcome, store, cluster.counts)
            count += 1
            if on_progress is not None:
                on_progress("pieces", count, max(total, count))


def _opened(spec: Spec) -> list[_Place]:
    """Every point with its network, opened once for each form of its inputs."""
    networks: dict[Any, Network | HexaneError] = {}
    data: dict[Any, Data | HexaneError] = {}
    places = []
    for point in spec.points:
        place = _Place(point)
        places.append(place)
        key = (point.path, point.batch, repr(point.shapes), repr(point.bind), repr(point.evaluate.get("data")))
        if key not in networks:
            networks[key] = _caught(lambda point=point: _network(point))  # type: ignore[misc]
        network = networks[key]
        if isinstance(network, HexaneError):
            place.errors.append(str(network))
            continue
        level = point.evaluate.get("level", "engine")
        place.network = network
        place.form = NetworkForm(
            point.chip, WeightFormat.of(point.weights).name, level, tuple(sorted(point.options.items()))
        )
        if "evaluate" in spec.jobs:
            opened = _caught(lambda p=place, k=key: _course(p, data, k))  # type: ignore[misc]
            if isinstance(opened, HexaneError):
                place.errors.append(f"evaluate: {opened}")
            else:
                place.course = opened
    return places


def _caught(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except HexaneError as error:
        return error


def _network(point: SweepPoint) -> Network:
    """The point's network; with a batch of its own, where the file leaves that open."""
    shapes, data = dict(point.shapes), point.evaluate.get("data")
    if point.batch and not shapes:
        network = open_model(point.path, bind=point.bind or None, data=data)
        shapes = {port.name: port.shape for port in input_ports(network.graph) if port.shape}
        if all(shape[0] == point.batch for shape in shapes.values()):
            return network
    if point.batch:
        shapes = {name: (point.batch, *shape[1:]) for name, shape in shapes.items()}
    return open_model(point.path, shapes=shapes or None, bind=point.bind or None, data=data)


def _course(place: _Place, datasets: dict[Any, Data | HexaneError], key: Any) -> Course:
    network, evaluation = place.network, place.point.evaluate
    assert network is not None
    course_key = (key, repr(sorted(evaluation.items())))
    if course_key not in datasets:
        datasets[course_key] = _caught(
            lambda: open_data(evaluation["data"], input_ports(network.graph), normalize=evaluation.get("normalize"))
        )
    data = datasets[course_key]
    if isinstance(data, HexaneError):
        raise data
    metric = metric_named(evaluation.get("metric", "top1"), evaluation.get("output"), data.alphabet)
    until = Until.parse(str(evaluation["until"])) if "until" in evaluation else None
    course = Course(network, place.form, data, metric, until, blocks_of(data, network.seconds, evaluation.get("limit")))
    if place.form.level == "graph":
        course.program = network.shared
    return course


def _groups(places: list[_Place]) -> list[list[Course]]:
    """Courses over the same network and data, which share their blocks and float32."""
    groups: dict[Any, list[Course]] = {}
    for place in places:
        if place.course is not None:
            key = (place.network and place.network.content, id(place.course.data), place.course.metric.content)
            groups.setdefault(key, []).append(place.course)
    return list(groups.values())


def _layers(course: Course, places: list[_Place]) -> int:
    place = next(place for place in places if place.course is course)
    return int(place.point.evaluate.get("layers", LAYERS))


def _job_piece(network: Network, form: NetworkForm, name: str, job: Job) -> Piece:
    return Piece.of(
        job, network.content, form.chip, form.weights, form.options, what=f"{name} of {network.name} on {form}",
        arguments=(form,), shared=(network.shared,),
    )  # fmt: skip


def _count(place: _Place, spec: Spec) -> int:
    blocks = len(place.course.blocks) if place.course is not None else 0
    return blocks + len(spec.jobs) if place.network is not None else 0


def _take(piece: Piece, outcome: Result | HexaneError, store: Store, counts: Counts) -> None:
    if len(piece.tag) == 3:
        accept(piece, outcome, store, counts)
        return
    place, job = piece.tag
    if isinstance(outcome, HexaneError):
        place.errors.append(f"{job}: {outcome}")
        if job == "compile" and place.course is not None and place.form.level == "engine":
            place.course.error = outcome
        return
    if job == "compile" and place.course is not None and place.form.level == "engine":
        place.course.program = package_of(outcome)
    place.given[job] = outcome


def _row(place: _Place, spec: Spec) -> dict[str, Any]:
    """Columns that depend on the point alone: no times of this machine."""
    entries = dict(place.point.columns)
    for job in spec.jobs:
        columns = place.given.get(job, {})
        entries |= {name: array.item() for name, array in columns.items() if array.ndim == 0 and name != "seconds"}
    course = place.course
    if course is not None and course.error is not None and f"compile: {course.error}" not in place.errors:
        place.errors.append(f"evaluate: {course.error}")
    if course is not None and course.error is None and course.used:
        row = course.row()
        for name in ("float32", "engine", "difference"):
            figures = getattr(row, name)
            low, high = figures.interval or (None, None)
            entries |= {name: figures.metric, f"{name}_low": low, f"{name}_high": high}
        entries |= {
            "metric": course.metric.name, "samples": row.samples, "stopped": row.stopped,
            "changed": len(row.changed), "changed_samples": " ".join(map(str, row.changed[:64])),
            "infinite_samples": row.nonfinite_samples, "dropped": row.dropped,
        }  # fmt: skip
    return {**entries, "error": "; ".join(sorted(place.errors)) or None}
