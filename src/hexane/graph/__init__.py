"""The network: a static dataflow graph in the MIL vocabulary, with type rules and a float32 reference evaluation."""
