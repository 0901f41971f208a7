"""The boards of the metrics: what each one shows, as Grafana reads it, and how it is drawn without Grafana."""
