"""Makes docs/report.png anew: `python -m benchmarks.page_picture`, a recording of examples/unet.py as a page."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from benchmarks.page import NAMES, lowtide

ROOT = Path(__file__).parent.parent
PICTURE = ROOT / "docs" / "report.png"
SHOWN = ("The whole run", "in detail", "What the peak is made of")
"""Of the sections, the first with each of these in its title; the rest is left out of the picture."""

KEEP = """(shown) => {
  const left = [...shown];
  for (const section of document.querySelectorAll("section")) {
    const at = left.findIndex((words) => section.querySelector("h2").textContent.includes(words));
    if (at < 0) section.remove(); else left.splice(at, 1);
  }
  document.querySelector("nav").remove();
}"""


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="lowtide-picture-") as name, sync_playwright() as driver:
        recording, page = str(Path(name) / "run.db"), Path(name) / "run.html"
        lowtide("run", "--out", recording, str(ROOT / "examples" / "unet.py"))
        lowtide("report", recording, "--html", str(page))
        program = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": 1120, "height": 900})
        tab.goto(page.as_uri())
        tab.wait_for_selector("html[data-ready]")
        tab.evaluate(KEEP, list(SHOWN))
        tab.screenshot(path=str(PICTURE), full_page=True)
        browser.close()


if __name__ == "__main__":
    main()
