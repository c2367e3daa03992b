"""The event loop of a process, and what runs in it beside the observer. When to look is in `runtime.schedule`."""
