"""The cases themselves, against another broker with AMQP 1.0: what fails there is wrong, or known by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.amqp_clients import programs
from tests.amqp_clients.server import Server

pytestmark = [pytest.mark.clients, pytest.mark.long, pytest.mark.timeout(900)]


@pytest.mark.parametrize("name", programs.PROGRAMS)
def test_the_reference_passes_what_we_have_to_pass(name: str, folder: Path) -> None:
    with Server("artemis", folder) as server:
        found = programs.run(name, server)
    assert not found.without_known(), found.text
    assert found.passed


def test_what_is_known_is_in_the_list() -> None:
    assert set(programs.KNOWN) <= set(programs.cases_of_source())
