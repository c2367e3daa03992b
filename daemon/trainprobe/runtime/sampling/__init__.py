"""When and what the observer reads: collectors, limits, deferred rows."""
