# Two commands do everything on a fresh machine: `make demo` and `make test`.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
JOBS   ?= auto

.PHONY: help setup demo quick test test-all claims lint docs bench models calibrate clean

help:
	@echo "make demo       set up, then run the main job on real input"
	@echo "make quick      a minute of tests from every package, for whoever changes a line"
	@echo "make test       set up, then run the tests"
	@echo "make test-all   the tests with the long sweeps and fuzz runs"
	@echo "make claims     recompute the numbers that README and docs state (ALL=--all: those that take minutes, too)"
	@echo "make lint       ruff, the layer contract, types"
	@echo "make bench      the benchmarks, as ratios against a peer"
	@echo "make models     fetch the real networks that some tests use"
	@echo "make docs       generate the documentation that comes from tables"

# What running needs, and what developing needs; the second holds the first.
$(VENV)/.demo $(VENV)/.dev: pyproject.toml
	$(PYTHON) tools/setup.py $(VENV) $(subst .,,$(notdir $@))

setup: $(VENV)/.dev

demo: $(VENV)/.demo
	$(BIN)/python -m hexane demo

QUICK := arithmetic/test_rules.py chips codegen/test_blocks.py codegen/test_parity.py codegen/test_programs.py \
	codegen/test_random_ops.py codegen/test_search.py codegen/test_targets.py codegen/test_walks.py \
	emulator/test_docs.py emulator/test_l2.py emulator/test_sanitizer.py \
	formats/test_onnx_parameters.py frontends/test_networks.py fuzz graph image/test_image_container.py \
	image/test_image_text.py isa/test_apple.py isa/test_compose.py isa/test_numbers.py isa/test_task.py \
	kernels/test_layouts.py kernels/test_registers.py kernels/test_streams.py mil/test_chain.py mil/test_quirks.py \
	numerics passes/test_layouts.py passes/test_rules.py program report/test_docs.py report/test_roofline.py restrictions/test_corpus.py \
	restrictions/test_fixes.py runtime/test_queue.py session/test_arrays.py session/test_check.py \
	studies/test_choose.py studies/test_verify.py test_structure.py train/test_parts.py timing/test_kernel.py timing/test_rows.py

quick: setup
	$(BIN)/python -m pytest -q -n $(JOBS) $(addprefix tests/,$(QUICK))

test: setup
	$(BIN)/python -m pytest -n $(JOBS)

test-all: setup
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[slow]'
	$(BIN)/python -m pytest -n $(JOBS) -m 'slow or not slow'

claims: setup
	OMP_NUM_THREADS=1 $(BIN)/python tools/claims.py $(ALL)

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache
	$(BIN)/mypy

docs: setup
	$(BIN)/python -m hexane.isa.docs docs
	$(BIN)/python -m hexane.graph.docs docs
	$(BIN)/python tools/onnx_coverage.py
	$(BIN)/python tools/recipes.py
	$(BIN)/python -m hexane.kernels.docs docs
	$(BIN)/python -m hexane.passes.docs docs
	$(BIN)/python -m hexane.emulator.docs docs
	$(BIN)/python -m hexane.cli.docs docs
	$(BIN)/python -m hexane.timing.docs docs

bench: setup
	@for file in benchmarks/[a-z]*.py; do \
		printf '\n== %s\n' $$file; $(BIN)/python $$file || failed="$$failed $$file"; \
	done; test -z "$$failed" || { echo "failed:$$failed"; exit 1; }

models: setup
	$(BIN)/python tools/fetch_models.py

clean:
	rm -rf $(VENV) out build dist .pytest_cache .ruff_cache .mypy_cache .import_linter_cache

calibrate: setup
	$(BIN)/python -m hexane.timing.calibrate $(or $(ROWS),tests/data/perf/calibration.csv)
	$(BIN)/python -m hexane.timing.calibrate $(or $(ROWS),tests/data/perf/calibration.csv) --others
