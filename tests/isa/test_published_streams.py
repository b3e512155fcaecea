"""Registers of published streams (docs/reference/generations.md 10 to 12): every one has a name, and every bit set a
named field.

The tables of H16 and later were made from lists of positions; these values come from programs.
"""

from __future__ import annotations

import pytest

from hexane.isa import Task
from hexane.isa.generations import family_of
from hexane.isa.records import ADDRESS, H13_HEADS, PACKED_HEADS, SCATTER, Record, canonical

# Word index -> value, as the specification lists them.
STREAMS = {
    "h16 add of two 128 x 128 maps": """
        1540=80 1=80 2=80 3=1 5=80 6=80 7=1 d=80 f=30 11=17 13=0 1342=ce 1343=ce 1346=100 134c=100 135a=01002031
        135b=01002031 1041=500172 1042=500172 1045=100 1046=100 1047=100 1048=100 1049=8040 104a=100 104b=100 104c=100
        104d=100 1052=50017a 1053=10040 1140=80000 1444=100 144e=01302031 1640=12 1641=a000a0 1646=0 164a=7f0000
        164b=20010701 1340=21 1341=21 1440=01000031""",
    "h16 convolution 3 x 3": """
        1540=102c0 1548=21 1557=21 1559=1200 1567=10e00 1568=1200 1577=1200 1=40 2=40 3=40 5=40 6=40 7=40 a=5042a0c3
        d=40 f=210000 10=2 13=100000 1342=ce 1346=80 1347=2000 135a=01002031 1041=500172 1042=500130 1045=80 1046=2000
        1052=50017a 1053=80000 1241=103c00 1244=3c00 1444=80 1445=2000 144e=01302031""",
    "h16 sigmoid": """
        1540=102c0 1584=21 1585=80 1=80 c=14000 d=10 f=10000 10=38 13=100000 1346=100 1041=500172 1042=500130 1053=1000
        1240=10082 1241=123c0c 1244=3c00""",
    "h16 rsqrt and logarithm": "10=0 14=1 1241=123c08 1243=11 1142=3f318000",
    "h16 reductions": "7=1 c=804000 f=40000 1040=4 1241=103c0b 1140=2 1145=3c000000 1347=100 1445=40 12=400",
    "h16 product of runtime matrices": """
        f=20200000 11=9 1052=50087a 144e=08302031 1445=2000 1440=010000f1 1540=202c0 1547=20000 1559=2000 1548=10041
        1041=100142 1240=10082 1541=2000 1584=00010021 1585=80""",
    "h16 chain of int8 layers": """
        0=1a f=222200 10=2 14=3 1041=120 1045=40 1046=1050 1052=500130 1053=c3c00 1240=81 1241=04100000 1244=3000""",
    "h17 relu": "1=1 2=1 3=40 c=14000 f=00200000 13=00200000 1440=01000021",
    "h19 convolution": """
        1=20 2=10 3=100 5=20 6=10 7=100 a=5006a048 d=10 f=222200 10=4 13=200000 1240=10000082 1242=113c00 1245=3c00
        1340=80000021 1341=80000021 1342=ce 1343=ce 135c=3211 1540=10040""",
    "h19 palette and sparse": "0=92 1240=10000046 1540=10260",
}


@pytest.mark.parametrize("name", STREAMS)
def test_every_bit_of_a_published_value_has_a_name(name):
    generation = name[:3]
    table = family_of(generation).table
    for entry in STREAMS[name].split():
        word, _, value = entry.partition("=")
        key = 4 * int(word, 16)
        assert key in table.by_key, f"word {word} is outside every block"
        dotted, register = table.by_key[key]
        task = Task(generation)
        task.set(dotted, int(value, 16))
        for row in register.fields:
            if task.get(f"{dotted}.{row.name}"):
                assert row.known, f"word {word} = {value}: {dotted}.{row.name}"


@pytest.mark.parametrize(
    ("head", "form", "first", "names"),
    [  # H17: the heads that were once taken for opcodes (§10)
        (0x93618005, SCATTER, "Common.Wout", ["Hout", "Cout", "UnicastCfg", "TileCfg", "Cfg", "NECfg", "TaskInfo"]),
        (0x95418005, SCATTER, "Common.Wout", ["Hout", "Cout", "TileCfg", "Cfg", "PatchCfg", "TaskInfo"]),
        (0x80081342, SCATTER, "TileDMASrc.CacheHints", ["PlaneStride"]),
        (0x22001440, ADDRESS, "TileDMADst.DMAConfig", []),
    ],
)
def test_heads_of_an_h17_program(head, form, first, names):
    record = PACKED_HEADS.read(head)
    table = family_of("h17").table
    assert record.form == form
    assert [table.register(key)[0] for key in record.addresses] == [
        first,
        *(f"{first.split('.')[0]}.{n}" for n in names),
    ]
    assert PACKED_HEADS.write(record) == head


@pytest.mark.parametrize(
    ("head", "addresses", "slot"),
    [  # §7.8, H14
        (0x20808642, (0x1908, 0x190C), 4),
        (0x22008444, (0x1110, 0x1114), 16),
        (0x2300844A, (0x1128, 0x112C), 24),
        (0x22808542, (0x1508, 0x150C), 20),
        (0x20808680, (0x1A00, 0x1A04), 4),
        (0x2080067D, (0x19F4,), 4),
    ],
)
def test_address_packets_of_h14(head, addresses, slot):
    assert PACKED_HEADS.read(head) == Record(ADDRESS, addresses, slot)
    assert PACKED_HEADS.write(Record(ADDRESS, addresses, slot)) == head


def test_heads_of_h13():
    """Appendix C: the records of a 504-byte task."""
    heads = {
        0x4401F800: (0x1F800, 18),
        0x2C01F8C8: (0x1F8C8, 12),
        0x3C000000: (0x0, 16),
        0x6C013800: (0x13800, 28),
        0x44004800: (0x4800, 18),
        0x0C008800: (0x8800, 4),
        0x1000C800: (0xC800, 5),
        0x18017800: (0x17800, 7),
        0xF401F800: (0x1F800, 62),
    }
    for head, (base, count) in heads.items():
        record = H13_HEADS.read(head)
        assert (record.base, len(record.addresses)) == (base, count)
        assert H13_HEADS.write(record) == head


def test_new_records_are_short():
    """Neighbours share a dense record, gaps of up to sixteen words a scatter record: whichever is shorter overall."""

    def words(*addresses: int) -> list[tuple[str, int, int]]:
        layout = canonical(PACKED_HEADS, 8, tuple(4 * a for a in addresses), ())
        return [(record.form, record.base // 4, len(record.addresses)) for record in layout.records]

    assert words(*range(100)) == [("dense", 0, 64), ("dense", 64, 36)]
    assert words(0, 2, 5, 16) == [("scatter", 0, 4)]
    assert words(0, 17) == [("dense", 0, 1), ("dense", 17, 1)]
    assert words(0, *range(10, 40)) == [
        ("scatter", 0, 8),
        ("dense", 17, 23),
    ]  # a tie: a single register heads a scatter
