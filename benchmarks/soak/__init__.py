"""Hours of trouble for daemon and exporter: do they grow, and do they tell of all that they lose?"""
