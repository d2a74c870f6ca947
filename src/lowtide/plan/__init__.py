"""Plan: a Problem and a budget in bytes in, a schedule that stays within it out. No TensorFlow in sight."""

from lowtide.plan.bridge import copy_name, problem_of, with_copies
from lowtide.plan.check import BrokenSchedule, check
from lowtide.plan.plan import Move, Plan, make_plan, plan_curve, plan_facts
from lowtide.plan.planner import Planner, curve, solve
from lowtide.plan.problem import Node, Point, Problem, Progress, Schedule, Smallest, Solution, Value

__all__ = [
    "BrokenSchedule",
    "Move",
    "Node",
    "Plan",
    "Planner",
    "Point",
    "Problem",
    "Progress",
    "Schedule",
    "Smallest",
    "Solution",
    "Value",
    "check",
    "copy_name",
    "curve",
    "make_plan",
    "plan_curve",
    "plan_facts",
    "problem_of",
    "solve",
    "with_copies",
]
