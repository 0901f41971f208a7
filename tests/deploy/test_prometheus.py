"""What Prometheus is told: it finds the brokers, and shows its token to those who tell and to those who are asked."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import yaml

from raybroker.model.settings.settings import lookup
from raybroker.services.metrics.metrics_access import TOKEN_FILE
from raybroker.services.metrics.metrics_http import PARAMETERS

FILE = Path(__file__).parents[2] / "deploy" / "prometheus.yml"


def test_the_token_is_shown_to_discovery_and_to_every_broker() -> None:
    (job,) = yaml.safe_load(FILE.read_text())["scrape_configs"]
    (discovery,) = job["http_sd_configs"]
    assert urlsplit(discovery["url"]).path in PARAMETERS
    assert discovery["authorization"] == job["authorization"]
    assert Path(job["authorization"]["credentials_file"]).name == TOKEN_FILE
    assert job["relabel_configs"][0]["source_labels"] == ["__meta_raybroker_broker"]
    assert lookup("raybroker.metrics.authentication", "broker").default == "services"
