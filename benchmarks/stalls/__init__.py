"""Labelled fault injection: real trainings with planted stalls, judged by the trainings' own clocks."""
