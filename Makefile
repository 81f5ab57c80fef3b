# make run     the window with the demo circuit; without a display the same without a window, into out/
# make test    everything that has to hold before a change goes in
# Both do `make setup` first. Nothing is done twice: every step leaves a stamp that is newer than what it was made from.

VENV := .venv
BIN := $(VENV)/bin
NATIVE := build/native
LIBRARY := cuzk_engine/_native/libcuzk_native.so
# With the folders, whose times tell that a file was removed.
KERNELS := $(shell find kernels)
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
PYTEST := QT_QPA_PLATFORM=offscreen $(BIN)/python -m pytest

# A stamp whose result is gone does not count: the library, or a Python that was removed or upgraded under its environment.
ifeq ($(wildcard $(LIBRARY)),)
$(shell rm -f $(NATIVE)/stamp)
endif
$(shell $(BIN)/python -S -c '' 2>/dev/null || rm -f $(VENV)/stamp-*)

.PHONY: setup run test test-all fuzz lint lock clean distclean
.DELETE_ON_ERROR:

setup: $(VENV)/stamp-package $(NATIVE)/stamp

run: setup
	@$(BIN)/python tools/check_system.py window
	@$(BIN)/cuzk app --demo out

test: lint node_modules/stamp
	$(PYTEST) -n $(JOBS) $(PYTEST_ARGS)

test-all: lint node_modules/stamp
	$(PYTEST) -n $(JOBS) -m "" $(PYTEST_ARGS)

fuzz: setup
	$(PYTEST) -n $(JOBS) -m fuzz --hypothesis-profile=fuzz $(PYTEST_ARGS)

lint: setup
	@QT_QPA_PLATFORM=offscreen $(BIN)/python tools/check_system.py window
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

# Needs uv (pip install uv); nothing else does.
lock:
	UV_CUSTOM_COMPILE_COMMAND="make lock" $(shell command -v uv || echo $(BIN)/uv) pip compile --quiet --upgrade --universal \
	    --python-version 3.11 --no-annotate --no-emit-index-url --group dev pyproject.toml -o requirements/lock.txt

clean:
	rm -rf build dist out cuzk_engine/_native/*.so .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +

distclean: clean
	rm -rf $(VENV) node_modules

$(VENV)/stamp-venv: tools/find_python tools/check_system.py
	@python=$$(tools/find_python) && "$$python" tools/check_system.py build && \
	    { $(BIN)/python -m pip --version >/dev/null 2>&1 || "$$python" -m venv --clear $(VENV); }
	@touch $@

$(VENV)/stamp-lock: $(VENV)/stamp-venv requirements/lock.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements/lock.txt
	@touch $@

$(VENV)/stamp-package: $(VENV)/stamp-lock pyproject.toml cuzk_engine/__init__.py
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --editable .
	@touch $@

$(NATIVE)/stamp: CMakeLists.txt $(wildcard tools/source_hash.py) $(KERNELS) | $(VENV)/stamp-lock
	$(BIN)/cmake -S . -B $(NATIVE) -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN)/ninja) -DCMAKE_BUILD_TYPE=Release \
	    -DPython3_EXECUTABLE=$(abspath $(BIN)/python) --log-level=WARNING
	$(BIN)/cmake --build $(NATIVE) --parallel $(JOBS)
	$(BIN)/cmake --install $(NATIVE) --prefix .
	@touch $@

# snarkjs, which the tests run beside cuzk where node is present.
node_modules/stamp: package.json package-lock.json
	@mkdir -p node_modules
	@if command -v npm >/dev/null; then npm ci --silent --no-audit --no-fund && touch $@ || \
	    echo "cuzk: setup: npm could not install snarkjs; the tests that need it will be skipped"; \
	else echo "cuzk: setup: no npm found; the tests against snarkjs will be skipped"; fi
