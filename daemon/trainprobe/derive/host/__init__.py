"""Devices, CPU quotas and clocks of the host and of its GPUs."""
