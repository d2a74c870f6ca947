"""Program + order -> Timeline: liveness, and a model of the BFC allocator."""

from lowtide.simulate.bfc import BfcAllocator, OutOfMemory
from lowtide.simulate.forecast import LARGEST_BATCH, Forecast, fits, forecast, largest_batch, largest_buffers
from lowtide.simulate.order import tidy_order
from lowtide.simulate.step import Steps, simulate
from lowtide.simulate.store import load_forecast, load_timeline, save_forecast, save_timeline
from lowtide.simulate.timeline import CATEGORIES, Buffer, Maker, Preparation, Timeline

__all__ = [
    "CATEGORIES",
    "LARGEST_BATCH",
    "BfcAllocator",
    "Buffer",
    "Forecast",
    "Maker",
    "OutOfMemory",
    "Preparation",
    "Steps",
    "Timeline",
    "fits",
    "forecast",
    "largest_batch",
    "largest_buffers",
    "load_forecast",
    "load_timeline",
    "save_forecast",
    "save_timeline",
    "simulate",
    "tidy_order",
]
