"""macOS by way of the private classes: the border, what goes over it in which order, and a fake of the other side.

``border`` says what is asked of the system, ``system`` asks the real one with ctypes, ``fake`` answers with NumPy
memory and the emulator. ``model`` is the protocol itself (docs/private-api.md, "Order of calls"); it knows neither
side. Nothing here ran on a Mac.
"""
