"""The open Linux drivers' side of the engine: their binary interface, and programs in their buffers."""
