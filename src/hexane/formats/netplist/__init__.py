"""``net.plist`` networks, as the engine's compiler takes them, with their weight files."""

from hexane.formats.netplist.reader import load, parse_netplist
from hexane.formats.netplist.writer import save

__all__ = ["load", "parse_netplist", "save"]
