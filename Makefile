# make demo and make test do everything on a machine that has Python 3.10 to 3.13 and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test lint unit unit-fit unit-tensorflow unit-others clean bench-predict bench-fit bench-planner bench-diagnose bench-run bench-page

demo: $(READY)
	$(BIN)/lowtide predict examples/unet.py
	$(BIN)/python -m benchmarks.demo

test: lint unit

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Two of these at once. Those without TensorFlow are apart: it and OR-Tools do not share a process.
unit: $(READY)
	$(MAKE) --jobs=2 --output-sync=target unit-fit unit-tensorflow unit-others

unit-fit: $(READY)
	$(BIN)/pytest tests/tf/test_fit*.py

unit-tensorflow: $(READY)
	$(BIN)/pytest tests/tf --ignore-glob='*/test_fit*.py'

unit-others: $(READY)
	$(BIN)/pytest --ignore=tests/tf

bench-predict: $(READY)
	$(BIN)/python -m benchmarks.predict; code=$$?; $(BIN)/python -m benchmarks.quote; exit $$code

bench-fit: $(READY)
	$(BIN)/python -m benchmarks.fit; code=$$?; $(BIN)/python -m benchmarks.fit_quote; exit $$code

bench-planner: $(READY)
	$(BIN)/python -m benchmarks.planner_suite; code=$$?; $(BIN)/python -m benchmarks.planner_quote; exit $$code

bench-run: $(READY)
	$(BIN)/python -m benchmarks.run; code=$$?; $(BIN)/python -m benchmarks.run_quote; exit $$code

bench-page: $(READY)
	$(BIN)/python -m benchmarks.page; code=$$?; $(BIN)/python -m benchmarks.run_quote; exit $$code

bench-diagnose: $(READY)
	$(BIN)/python -m benchmarks.diagnose; code=$$?; $(BIN)/python -m benchmarks.diagnose_quote; exit $$code

$(READY): pyproject.toml requirements.lock
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	touch $@

clean:
	rm -rf $(VENV)
