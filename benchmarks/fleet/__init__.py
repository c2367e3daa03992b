"""A fleet of simulated hosts, scraped by a real Prometheus with the project's rules: see ``__main__``."""
