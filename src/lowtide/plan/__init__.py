"""Plan: a Problem and a budget in bytes in, a schedule that stays within it out. No TensorFlow in sight."""

from lowtide.plan.account import Move
from lowtide.plan.bridge import copy_name, problem_of, with_copies
from lowtide.plan.check import BrokenSchedule, check
from lowtide.plan.curve import plan_curve
from lowtide.plan.facts import plan_facts
from lowtide.plan.plan import Plan, make_plan
from lowtide.plan.planner import Planner, curve, solve
from lowtide.plan.problem import Node, Point, Problem, Progress, Schedule, Smallest, Solution, Value
from lowtide.plan.store import load_plan, save_plan

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
    "load_plan",
    "make_plan",
    "plan_curve",
    "plan_facts",
    "problem_of",
    "save_plan",
    "solve",
    "with_copies",
]
