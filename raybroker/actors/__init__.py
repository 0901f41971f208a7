"""Where Ray is: thin actors around plain objects, and every call of Ray behind one wall (``runtime``)."""
