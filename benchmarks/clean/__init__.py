"""Hours of trainings in which nothing is planted, under one daemon: whatever it tells of them is false."""
