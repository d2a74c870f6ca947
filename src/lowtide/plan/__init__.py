"""Plan: a Problem and a budget in bytes in, a schedule that stays within it out. No TensorFlow in sight."""

from lowtide.plan.check import BrokenSchedule, check
from lowtide.plan.planner import Planner, curve, solve
from lowtide.plan.problem import Node, Point, Problem, Progress, Schedule, Smallest, Solution, Value

__all__ = [
    "BrokenSchedule",
    "Node",
    "Planner",
    "Point",
    "Problem",
    "Progress",
    "Schedule",
    "Smallest",
    "Solution",
    "Value",
    "check",
    "curve",
    "solve",
]
