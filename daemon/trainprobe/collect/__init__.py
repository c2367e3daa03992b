"""Facts from /proc, /sys, cgroups, NVML and py-spy, and the helpers that read them.

Every source has three outcomes: a value, Unavailable (why, remedy) or Failed.

What /proc, environments, command lines and cgroup names say was written by strangers: reads are bounded, a vanished
process is an ordinary answer (None), and nothing here raises because of what a process did to its own names.
"""
