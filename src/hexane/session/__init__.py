"""The main job: a network through the engine, held against float32; its placement, verdict and times.

``run`` compiles, runs and compares, ``check`` places every op, ``how_long`` and ``bench`` say what it takes,
``scaling`` and ``fix`` mend it, ``baseline`` compares two answers. Inputs come from files, pictures or a seed.
"""
