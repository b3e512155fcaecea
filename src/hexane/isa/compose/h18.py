"""H18 (A19): as H17, with switches in records and a packet per event [APPLE: 56 of 57 programs]."""

from __future__ import annotations

from dataclasses import replace

from hexane.isa.compose.h17 import RULES as _H17
from hexane.isa.compose.rules import PACKETS

RULES = replace(_H17, packets=PACKETS, switch_slot=None, event_slot=4)
