"""Facts from /proc, /sys and cgroups. Every source has three outcomes: a value, Unavailable (why, remedy) or Failed.

What /proc, environments, command lines and cgroup names say was written by strangers: reads are bounded, a vanished
process is an ordinary answer (None), and nothing here raises because of what a process did to its own names.
"""
