"""Growth over a run: slopes, forecasts, periods."""
