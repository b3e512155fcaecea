"""What one pass of the engine costs: the layers that every estimate and the compiler's choices are priced by."""
