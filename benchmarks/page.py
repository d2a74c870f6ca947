"""`make bench-page`: how large the page of a ResNet50 recording is, and how long a browser takes to open it.

    python -m benchmarks.page [--shot FOLDER]

Records examples/resnet50.py, writes the page, and opens it in headless Chromium, three times in a new tab, the browser
already running. Seconds are by the page's own clock, from the start of its loading until the first screen is drawn, and
until every chart below it is drawn too. Writes benchmarks/results/page.json, and exits with 3 when a bound is broken:
5 MB, and two seconds for the first screen at the median. `--shot` keeps the page and a picture of it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "page.json"
SCRIPT = HERE.parent / "examples" / "resnet50.py"
STEPS = 6
BYTES_WITHIN, SECONDS_WITHIN = 5_000_000, 2.0
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


def lowtide(*arguments: str) -> None:
    settings = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-m", "lowtide.cli.main", *arguments]
    done = subprocess.run(command, env=settings, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"lowtide {arguments[0]} failed:\n{done.stderr[-2000:]}")


def opened(file: Path, shot: Path | None) -> dict[str, Any]:
    """Seconds of each open, to the first screen and to the last chart, and what the page logged."""
    from playwright.sync_api import sync_playwright

    program = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    seconds, whole, said = [], [], []
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        for _ in range(3):
            tab = browser.new_page(viewport={"width": 1280, "height": 900})
            tab.on("console", lambda message: said.append(message.text))
            tab.on("pageerror", lambda error: said.append(str(error)))
            tab.goto(file.as_uri())
            tab.wait_for_selector("html[data-ready]")
            seconds.append(int(tab.evaluate("document.documentElement.dataset.open")) / 1e3)
            whole.append(int(tab.evaluate("document.documentElement.dataset.ready")) / 1e3)
            if shot is not None:
                tab.screenshot(path=str(shot), full_page=True)
            tab.close()
        browser.close()
    return {"seconds": seconds, "seconds_to_the_last_chart": whole, "logged": said}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shot", type=Path, metavar="FOLDER", help="keep recording, page and a picture of it here")
    options = parser.parse_args()
    console = Console()
    with tempfile.TemporaryDirectory(prefix="lowtide-bench-") as name:
        folder = options.shot or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        recording, page = folder / "resnet50.lowtide.db", folder / "resnet50.html"
        console.print(f"recording {STEPS} steps of {SCRIPT.name}")
        lowtide("run", "--out", str(recording), str(SCRIPT), "--steps", str(STEPS))
        lowtide("report", str(recording), "--html", str(page))
        size = page.stat().st_size
        found = opened(page, folder / "resnet50.png" if options.shot else None)
    usual, whole = (statistics.median(found[key]) for key in ("seconds", "seconds_to_the_last_chart"))
    missed = [f"{size / 1e6:.1f} MB, at most {BYTES_WITHIN / 1e6:.0f}"] * (size > BYTES_WITHIN)
    missed += [f"{usual:.2f} s to open, at most {SECONDS_WITHIN:.0f}"] * (usual > SECONDS_WITHIN)
    missed += [f"it logged: {text}" for text in found["logged"]]
    document = {"script": SCRIPT.name, "steps": STEPS, "page_bytes": size, **found, "not_reached": missed}
    RESULTS.write_text(json.dumps(document, indent=1) + "\n")
    console.print(f"{size / 1e6:.2f} MB; open in {usual:.2f} s, the last chart drawn after {whole:.2f} s")
    for text in missed:
        console.print(f"not reached: {text}")
    return 3 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
