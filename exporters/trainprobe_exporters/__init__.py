"""trainprobe_exporters: what the probe publishes, told to Prometheus over HTTP, with no rights of its own."""
