"""Tests that parse Ray's command lines import Ray: its folder and token are the tests' own before that."""

from __future__ import annotations

from tests.cluster import rays

rays.folder()  # Before any test of any folder imports Ray.
