"""Cost of one pass of the engine: the layers that every estimate and the compiler's choices are priced by."""
