"""Graph to graph: canonical form, folding, fusion, legalisation."""
