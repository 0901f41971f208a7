"""What can be measured: the catalogue, the collector, the exposition that Prometheus reads, and the metrics topics."""
