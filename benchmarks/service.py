"""One program behind many callers: calls per second in threads and processes, as ratios to one thread of the same run.

    python benchmarks/service.py [--seconds S] [--rounds R] [--network FILE] [--device NAME]

Rows: one session in 1, 2, 4 and 8 threads, the same session behind a lock in 8 threads, 4 processes that share a
session by fork and by spawn, and a web service (ASGI, one process and four, 8 connections): uvicorn where it is
installed, else a server of the standard library that forks. Each row is the median of R rounds; a round measures every
row once, and its ratio is to the one thread of that round. "wrong" counts answers of other bits.

The last line says how busy the machine was: processor seconds of this run over those that it had. "per cpu s" are calls
per second of processor time, which other work on the machine hardly changes: 1.00 of one thread's means that callers
cost each other nothing.
"""

from __future__ import annotations

import argparse
import http.client
import importlib.util
import multiprocessing
import os
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, NamedTuple

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "HEXANE_THREADS"):
    os.environ.setdefault(name, "1")
sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "src")]

import numpy as np  # noqa: E402

import hexane  # noqa: E402
from hexane.graph import GraphBuilder  # noqa: E402
from hexane.program.run import Session  # noqa: E402

PROCESSES, CONNECTIONS = 4, 8


def small() -> Any:
    """Four convolutions, a mean and a head: 12 ops on a picture of 64x64."""
    b, rng = GraphBuilder(), np.random.default_rng(0)
    x, channels = b.input("x", (1, 3, 64, 64), "fp16"), 3
    for stride in (2, 1, 2, 1):
        weight = (rng.normal(size=(32, channels, 3, 3)) / np.sqrt(9 * channels)).astype(np.float16)
        x, channels = b.relu(x=b.conv(x=x, weight=weight, strides=[stride] * 2, pad_type="same")), 32
    mean = b.reshape(x=b.reduce_mean(x=x, axes=[2, 3]), shape=[1, 32])
    head = b.linear(x=mean, weight=rng.normal(size=(10, 32)).astype(np.float16), bias=np.zeros(10, np.float16))
    b.output(b.softmax(x=head, axis=-1), name="y")
    return b.graph


def opened() -> Session:
    """A session of the network and device of the command line, warm."""
    network = os.environ.get("SERVICE_NETWORK")
    program = hexane.compile(network or small(), os.environ.get("SERVICE_CHIP", "M1"))
    session = program.on(os.environ.get("SERVICE_DEVICE", "emulator"))
    session.warm()
    return session


def inputs_of(session: Session) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    return {p.name: rng.normal(size=p.shape).astype(np.float16) for p in session.program.inputs}


def answer(session: Session, inputs: dict[str, np.ndarray]) -> bytes:
    """All outputs as bytes."""
    return b"".join(np.ascontiguousarray(array).tobytes() for array in session.run(inputs).values())


class Row(NamedTuple):
    """Calls per second and per second of processor time (0: not known), and answers of other bits."""

    rate: float
    per_cpu: float
    wrong: int


def calls(call: Callable[[], bytes], seconds: float, expected: bytes) -> tuple[int, int]:
    """How many calls end within the time, and how many of them gave other bytes."""
    count = wrong = 0
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        wrong += call() != expected
        count += 1
    return count, wrong


def in_threads(many: list[Callable[[], bytes]], seconds: float, expected: bytes) -> Row:
    """One thread for each call."""
    counts: list[tuple[int, int]] = []
    threads = [threading.Thread(target=lambda c=c: counts.append(calls(c, seconds, expected))) for c in many]
    begin, cpu = time.perf_counter(), time.process_time()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    done, cpu = sum(n for n, _ in counts), time.process_time() - cpu
    return Row(done / (time.perf_counter() - begin), done / cpu, sum(bad for _, bad in counts))


def child(session: Session, seconds: float, expected: bytes, ready: Any, counts: Any) -> None:
    """A process's calls on a session that it inherited or unpickled."""
    inputs = inputs_of(session)
    for _ in range(4):
        answer(session, inputs)
    ready.wait()
    begin = time.process_time()
    counts.put((*calls(lambda: answer(session, inputs), seconds, expected), time.process_time() - begin))


def in_processes(how: str, session: Session, seconds: float, expected: bytes) -> Row:
    """Four processes, from the moment that all are ready."""
    context = multiprocessing.get_context(how)
    ready, counts = context.Barrier(PROCESSES), context.Queue()
    processes = [
        context.Process(target=child, args=(session, seconds, expected, ready, counts)) for _ in range(PROCESSES)
    ]
    for process in processes:
        process.start()
    results = [counts.get(timeout=600) for _ in processes]
    for process in processes:
        process.join()
    done, wrong, cpu = map(sum, zip(*results))
    return Row(done / seconds, done / cpu, wrong)


# ---- a web service ---------------------------------------------------------------------------------------------------

SERVED: list[Session] = []


async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """The ASGI application that uvicorn's workers run: the body is the first input's bytes."""
    import asyncio

    if scope["type"] == "lifespan":
        while (await receive())["type"] != "lifespan.shutdown":
            SERVED.append(await asyncio.to_thread(opened))
            await send({"type": "lifespan.startup.complete"})
        SERVED.pop().close()
        await send({"type": "lifespan.shutdown.complete"})
        return
    body, more = b"", True
    while more:
        part = await receive()
        body, more = body + part.get("body", b""), part.get("more_body", False)
    result = await asyncio.to_thread(answered, body)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(result))]})
    await send({"type": "http.response.body", "body": result})


def answered(body: bytes) -> bytes:
    """The outputs' bytes for a request's body: the inputs' bytes, one after the other."""
    session, arrays, at = SERVED[0], {}, 0
    for port in session.program.inputs:
        size = int(np.prod(port.shape))
        arrays[port.name] = np.frombuffer(body, np.float16, size, at).reshape(port.shape)
        at += 2 * size
    return answer(session, arrays)


class Handler(BaseHTTPRequestHandler):
    """The same for the server of the standard library."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Nothing."""

    def do_POST(self) -> None:
        result = answered(self.rfile.read(int(self.headers["content-length"])))
        self.send_response(200)
        self.send_header("content-length", str(len(result)))
        self.end_headers()
        self.wfile.write(result)


class ForkingServer(HTTPServer):
    """Threads for connections, in each of the forked processes."""

    def process_request(self, request: Any, client_address: Any) -> None:
        threading.Thread(target=self.process_request_thread, args=(request, client_address), daemon=True).start()

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        self.finish_request(request, client_address)
        self.shutdown_request(request)


def serve(port: int, workers: int) -> None:
    """The standard library's server in so many forked processes, which inherit a warm session."""
    SERVED.append(opened())
    server = ForkingServer(("127.0.0.1", port), Handler)
    children = []
    for _ in range(workers):
        pid = os.fork()
        if not pid:
            server.serve_forever()
        children.append(pid)
    signal.signal(signal.SIGTERM, lambda *_: [os.kill(pid, signal.SIGKILL) for pid in children] and sys.exit(0))
    for pid in children:
        os.waitpid(pid, 0)


@contextmanager
def service(workers: int) -> Iterator[int]:
    """A web service on a free port of this machine, once it answers."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    here = Path(__file__).resolve()
    if importlib.util.find_spec("uvicorn"):
        command = ["-m", "uvicorn", "--app-dir", str(here.parent), "service:app", "--port", str(port),
                   "--workers", str(workers), "--log-level", "error"]  # fmt: skip
    else:
        command = [str(here), "--serve", f"{port},{workers}"]
    process = subprocess.Popen([sys.executable, *command])
    try:
        for _ in range(1200):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield port
    finally:
        process.terminate()
        process.wait(60)


class Connection:
    """A kept connection that asks for the same answer again and again."""

    def __init__(self, port: int, body: bytes) -> None:
        self.connection, self.body = http.client.HTTPConnection("127.0.0.1", port, timeout=600), body

    def __call__(self) -> bytes:
        self.connection.request("POST", "/", self.body)
        return self.connection.getresponse().read()


def in_service(workers: int, body: bytes, seconds: float, expected: bytes) -> Row:
    """Answers over 8 connections, behind as many calls of each that warm the workers."""
    with service(workers) as port:
        connections = [Connection(port, body) for _ in range(CONNECTIONS)]
        in_threads(list(connections), min(2.0, seconds), expected)
        return in_threads(list(connections), seconds, expected)._replace(per_cpu=0)


# ---- the table -------------------------------------------------------------------------------------------------------


def measure(seconds: float) -> dict[str, Row]:
    """One round of every row."""
    session = opened()
    inputs = inputs_of(session)
    expected = answer(session, inputs)
    lock = threading.Lock()

    def locked() -> bytes:
        with lock:
            return answer(session, inputs)

    web = "uvicorn" if importlib.util.find_spec("uvicorn") else "forked server"
    body = b"".join(array.tobytes() for array in inputs.values())
    rows: dict[str, Row] = {}
    for count in (1, 2, 4, 8):
        one = [lambda: answer(session, inputs)] * count
        in_threads(one, min(0.5, seconds), expected)  # machines for so many callers
        rows[f"one session, {count} threads" if count > 1 else "one session, 1 thread"] = in_threads(
            one, seconds, expected
        )
    rows["one session behind a lock, 8 threads"] = in_threads([locked] * 8, seconds, expected)
    for how in ("fork", "spawn"):
        rows[f"{PROCESSES} processes by {how}"] = in_processes(how, session, seconds, expected)
    for workers in (1, PROCESSES):
        rows[f"{web}, {workers} process{'es' if workers > 1 else ''}, {CONNECTIONS} connections"] = in_service(
            workers, body, seconds, expected
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each row in a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--network", default="", help="a network's file; default: 12 ops on 64x64")
    parser.add_argument("--device", default="emulator")
    parser.add_argument("--serve", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    os.environ.setdefault("SERVICE_NETWORK", arguments.network)
    os.environ.setdefault("SERVICE_DEVICE", arguments.device)
    if arguments.serve:
        serve(*map(int, arguments.serve.split(",")))
        return
    before, begin, load = os.times(), time.perf_counter(), os.getloadavg()[0]
    rounds = [measure(arguments.seconds) for _ in range(arguments.rounds)]
    print(f"{'':<42} {'calls/s':>8} {'to 1 thread':>12} {'per cpu s':>10} {'to 1 thread':>12} {'wrong':>6}")
    first = next(iter(rounds[0]))
    for name in rounds[0]:
        rate, per_cpu = (statistics.median(r[name][i] for r in rounds) for i in (0, 1))
        to_rate, to_cpu = (statistics.median(r[name][i] / r[first][i] for r in rounds) for i in (0, 1))
        cpu = f"{per_cpu:10.0f} {to_cpu:12.2f}" if per_cpu else f"{'-':>10} {'-':>12}"
        print(f"{name:<42} {rate:8.0f} {to_rate:12.2f} {cpu} {sum(r[name].wrong for r in rounds):6}")
    after, cores = os.times(), len(os.sched_getaffinity(0))
    mine = sum(after[:4]) - sum(before[:4])
    had = (time.perf_counter() - begin) * cores
    print(
        f"{cores} processors, load {load:.1f} before and {os.getloadavg()[0]:.1f} after; "
        f"{mine:.0f} of {had:.0f} processor seconds were this run's"
    )


if __name__ == "__main__":
    main()
