"""Restrictions on weights: files, records, and tensors that take the place of constants."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from hexane.chips import Evidence
from hexane.errors import HexaneError
from hexane.formats.blob import HEADER, RECORD
from hexane.formats.mutable import mutable_paths
from hexane.graph.registry import with_trait
from hexane.graph.traits import CONVOLVES
from hexane.graph.types import DTYPES, TensorType
from hexane.restrictions.reports import fails, refused, runs, wrong
from hexane.restrictions.rule import DIRECT, INTERFACES, Found, hit, rule
from hexane.restrictions.subject import BlobUse, Subject

FIRST_RECORD = HEADER.size
FIRST_PAYLOAD = FIRST_RECORD + RECORD.size
MOST_FILES = 16
MOST_BAKED_BYTES = 2_000_000_000


@rule(
    "W2",
    "point at the metadata record: 64 for the first, then the end of each payload rounded up to 64",
    wrong("Orion", "M4 Max", 15, note="128 compiles and gives garbage"),
    refused("ane-as", "M5 Max", 26),
    refused("coremltools' reader"),
    interfaces=INTERFACES,
    orion=8,
)
def offset_of_no_record(subject: Subject) -> Found:
    """offset {offset} of {path} is {what}"""
    for blob in subject.blobs:
        what = _no_record(subject, blob)
        if what:
            yield hit(blob.place, offset=blob.offset, path=blob.path, what=what)


def _no_record(subject: Subject, blob: BlobUse) -> str:
    """Reason why no record can stand at the offset; by the file where it is given, else by the layout alone."""
    if subject.weights is not None:
        try:
            file = subject.weights.file(blob.path)
            if file is not None:
                file.record(blob.offset)
                return ""
        except HexaneError as error:
            return f"no metadata record ({error.message})"
    if blob.offset < FIRST_RECORD:
        return "inside the file's header, whose first record lies at 64"
    if blob.offset == FIRST_PAYLOAD:
        return "where the payload of the first record begins; its record lies at 64"
    return ""


@rule(
    "W3",
    "write the payload's position counted from the start of the file, in 64 bits",
    wrong("anedvd", "A18 Pro", 27, note="every tensor read the first payload"),
    wrong("q38", "M5 Max", 26, note="every procedure used the weights of procedure 0"),
    interfaces=INTERFACES,
)
def payload_position(subject: Subject) -> Found:
    """the record at {offset} of {path} says that its payload lies at {position}, {what}"""
    first_use: dict[tuple[str, int], int] = {}
    for blob, (_, size, position, _) in _records(subject):
        owner = first_use.setdefault((blob.path, position), blob.offset)
        words: dict[str, Any] = {"offset": blob.offset, "path": blob.path, "position": position}
        if owner != blob.offset:
            yield hit(blob.place, what=f"as does the record at {owner}", **words)
        elif position < FIRST_RECORD and size:
            yield hit(blob.place, what="inside the header of the file", **words)


@rule(
    "W4",
    "write the payload's size in bytes into every record",
    refused("maderix issue 42", "M3 Pro, M3 Ultra", 15, note="256 and 384 channels where the size said 512"),
    runs("maderix issue 42", "M4, M4 Max, M3 Ultra", 26),
    evidence=Evidence.INFERRED,
    interfaces=INTERFACES,
)
def payload_size(subject: Subject) -> Found:
    """{what}"""
    records = list(_records(subject))
    for blob, (_, size, _, _) in records:
        if size != blob.type.nbytes:
            what = (
                f"the record at {blob.offset} of {blob.path} holds {size} bytes, {blob.type} takes {blob.type.nbytes}"
            )
            yield hit(blob.place, what=what)
    if not subject.handed_over and subject.interface in DIRECT:
        for path, blobs in _by_file(subject).items():
            if len({blob.offset for blob in blobs}) > 1 and subject.weight_file(path) is None:
                what = (
                    f"the sizes in the records of {path} were not looked at, because the file was not given: "
                    "macOS 15 refuses a wrong one, macOS 26 ignores it"
                )
                yield hit(blobs[0].place, what=what, reports=UNSEEN_SIZES)
                return


UNSEEN_SIZES = (
    refused("maderix issue 42", "M3 Pro, M3 Ultra", 15),
    runs("maderix issue 42", "M3 Pro, M3 Ultra, M4, M4 Max"),
)


@rule(
    "W5",
    "put several constants into one file (on M1 one file per matrix, W7)",
    refused("Orion", "M4 Max", 15, note="16 pass, 17 fail; counts tensors"),
    refused("Espresso", "M3 Max", 15, note="15 files with 30 constants pass, 17 and 18 files fail"),
    refused("q38", "M5 Max", 26, note="16 blobs pass, 24 fail; counts tensors"),
)
def weight_files(subject: Subject) -> Found:
    """{count} weight files, and the compiler takes {most}"""
    files = _by_file(subject)
    if len(files) > MOST_FILES:
        first = list(files.values())[MOST_FILES][0]
        yield hit(first.place, count=len(files), most=MOST_FILES)


@rule(
    "W6",
    "use 15 weight files, or take the scalar from a file",
    refused("Orion's community", "M4 Max", 15, note="seen once"),
)
def weight_files_with_scalar(subject: Subject) -> Found:
    """{op} by an inline scalar in a program with 16 weight files: the limit drops to 15"""
    if len(_by_file(subject)) != MOST_FILES:
        return
    for statement in subject.calls("add", "mul", "pow"):
        for name in ("x", "y"):
            value = statement.value(name)
            if value is not None and value.is_constant and value.rank == 0 and DTYPES[value.dtype].kind == "f":
                yield hit(statement.place_of(name), op=statement.type)
                return


@rule("W7", "write one file per matrix", refused("maderix", "M1"))
def records_in_one_file(subject: Subject) -> Found:
    """{path} holds several records, and M1 is reported to take one per file"""
    if not subject.system.is_on("h13"):
        return
    for path, blobs in _by_file(subject).items():
        second = next((blob for blob in blobs if blob.offset != blobs[0].offset), None)
        if second is not None:
            yield hit(second.place, path=path)


_REMEDY_W11 = (
    "use matmul with runtime operands, or pack the weights behind the activations on W and slice them out "
    "(docs/weights-renewed.md)"
)


@rule(
    "W11",
    _REMEDY_W11,
    wrong("field guide", "M3 Max", 26, note="compiles, the data are ignored"),
    runs("q38", "M5 Max", 26, note="names in byte order, [1, O, 1, I] reshaped"),
    runs("Core ML's plan", "M4", 27),
)
def runtime_conv_weight(subject: Subject) -> Found:
    """the weight of {op} {name} is computed at run time{groups}"""
    for statement in subject.calls(*with_trait(CONVOLVES)):
        if statement.is_computed("weight"):
            groups = statement.constant("groups") or 1
            words: dict[str, Any] = {
                "op": statement.type,
                "name": statement.name,
                "groups": f", in {groups} groups" if groups > 1 else "",
            }
            yield hit(statement.place_of("weight"), reports=_GROUPED if groups > 1 else None, **words)


_GROUPED = (
    refused("maderix issue 47", "M1", 26, note="grouped form"),
    runs("Core ML's plan", "M4", 27, note="without groups"),
)


@rule(
    "W13",
    "put the tensor into a weight file (BLOBFILE)",
    refused("mil-hwx-compiler", "M1, M2", note="the bare compiler, all but scalars"),
    refused("q38", "M5 Max", 26, note="constants of rank 4"),
    runs("mlxfast", "M4 Max", 26, note="small ones"),
    runs("dev-erik", "M4 Max", 15, note="through MLE5"),
    contested=True,
)
def inline_tensor(subject: Subject) -> Found:
    """{name} is a tensor of {count} elements written into the text"""
    for call in subject.constants:
        number = call.attributes.get("val")
        type_ = number.type if number is not None else None
        if (
            number is None
            or not isinstance(type_, TensorType)
            or not isinstance(number.payload, list)
            or not type_.is_static
        ):
            continue
        if type_.rank and type_.count > 1 and DTYPES[type_.dtype].kind == "f":
            yield hit(call.results[0].place, name=call.results[0].name, count=type_.count)


@rule("W14", "hand over every file that the text names", refused("all sources"), interfaces=INTERFACES)
def weight_file_missing(subject: Subject) -> Found:
    """the weight file {path} is not among the weights that were handed over"""
    if subject.weights is None or not subject.handed_over:
        return
    mutable = mutable_paths(subject.tree.attributes)
    for path, blobs in _by_file(subject).items():
        try:
            missing = subject.weights.file(path) is None
        except HexaneError:
            continue
        if missing:
            yield hit(blobs[0].place, reports=_MUTABLE if path in mutable else None, path=path)


_MUTABLE = (fails("ane-mutable-adapters", "M5 Pro", 27, note="a mutable file: predict refuses, by name"),)


@rule(
    "S11",
    "split the program, or read the weights at run time",
    refused("ANEForge", "M5", 26, note="about 2 GB of baked weights per program"),
    runs("ANEForge", "M5", 26, note="two procedure banks of 15 GiB together"),
    contested=True,
)
def baked_weights(subject: Subject) -> Found:
    """{bytes:,} bytes of weights in one program"""
    size = sum({(b.path, b.offset): b.type.nbytes for b in subject.blobs}.values())
    if size > MOST_BAKED_BYTES:
        yield hit(subject.blobs[0].place, bytes=size)


def _by_file(subject: Subject) -> dict[str, list[BlobUse]]:
    files: dict[str, list[BlobUse]] = defaultdict(list)
    for blob in subject.blobs:
        files[blob.path].append(blob)
    return files


def _records(subject: Subject) -> list[tuple[BlobUse, tuple[int, int, int, int]]]:
    """The records that the references find, where the files are given and have them."""
    if subject.weights is None:
        return []
    records = []
    for blob in subject.blobs:
        try:
            file = subject.weights.file(blob.path)
            if file is not None:
                records.append((blob, file.record(blob.offset)))
        except HexaneError:
            continue
    return records
