"""Ray actors: thin ones around plain objects, and every call of Ray behind one wall (``runtime``)."""
