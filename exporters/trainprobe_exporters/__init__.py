"""trainprobe_exporters: what the probe publishes, told to Prometheus and browsers over HTTP and to
Grafana as annotations, with no rights of its own."""
