"""Every property that can be set: name, kind, bounds, default, meaning, and when a change of it takes effect.

Values and tables; it imports the model alone. Enter at :mod:`raybroker.model.settings.settings`.
"""
