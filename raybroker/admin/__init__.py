"""Administration: one typed function a verb, the same for Python and the command line."""
