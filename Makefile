# Each target first creates the virtual environment if it is missing.
PYTHON ?= python3
VENV := .venv
INSTALLED := $(VENV)/.installed
# All tests of a file run in one process, because they share workers, which take seconds to start.
PARALLEL := -n 2 --dist loadfile --no-loadscope-reorder
RINGS := pure simulated process engines julia extras
PYTEST := $(VENV)/bin/python -m pytest $(PARALLEL)
LINTERS := "ruff check ." "ruff format --check ." mypy lint-imports vulture
# Without torch: the index has its oldest version only with several GB of CUDA libraries. OLDEST_EXTRAS can add it.
OLDEST := .venv-oldest
OLDEST_PYTHON ?= python3.11
OLDEST_EXTRAS ?= tf,flux,jax,keras,images,memray,plot,report,pandas,test

# A GPU machine may have no package index. Without .venv, use the Python that has the frameworks.
GPU_PYTHON ?= $(if $(wildcard $(INSTALLED)),$(VENV)/bin/python,$(PYTHON))

.PHONY: $(RINGS) docs compare test test-all planted proofs gpu gpu-wheels oldest coverage mutants lint readme notebooks gallery schema release-check clean

compare: $(INSTALLED)
	@$(VENV)/bin/polybench setup flux --if-missing || true # without Julia, flux is listed as unavailable
	$(VENV)/bin/polybench compare --engines flux,torch,tf $(ARGS)

test: $(INSTALLED) # without Julia
	$(PYTEST) -m "not julia and not wide" $(ARGS)

$(RINGS): $(INSTALLED) # the tests of a ring (tests/rings.py) that are not wide
	$(PYTEST) -m "$@ and not wide" $(ARGS)

test-all: $(INSTALLED) # with Julia and the wide ring
	$(PYTEST) $(ARGS)

planted: $(INSTALLED) # plants every bug of tests/planted; prints those that no test notices
	$(VENV)/bin/python -m tests.planted $(ARGS)

proofs: $(INSTALLED) # simulates 2,000 studies a figure; fails if an interval or a verdict misses its limit; takes one to two hours
	$(VENV)/bin/python -m benchmarks.proofs $(ARGS)

gpu: # everything that needs a GPU, in build/gpu, within nine minutes; exit code 4 without a GPU
	$(GPU_PYTHON) -m tests.gpu $(ARGS)

gpu-wheels: # build/gpu-wheels: packages for a GPU machine without an index
	$(GPU_PYTHON) -m tests.gpu download $(ARGS)

oldest: $(OLDEST)/.installed # the tests with the oldest versions that pyproject.toml allows
	$(OLDEST)/bin/python -m pytest $(PARALLEL) -m "not wide" $(ARGS)

coverage: $(INSTALLED) # includes workers; about half as slow again, so not for every commit
	$(PYTEST) --cov --cov-report=term:skip-covered --cov-fail-under=90 $(ARGS)

mutants: $(INSTALLED) # changes in the arithmetic that no test notices
	$(VENV)/bin/python -m pip install --quiet mutmut==3.8.1
	$(VENV)/bin/mutmut run $(ARGS)
	$(VENV)/bin/mutmut results | sed "/caught by type check/d"

lint: $(INSTALLED) # runs every linter, then fails with the names of those that failed
	@failed=; for linter in $(LINTERS); do \
		echo "$$linter"; $(VENV)/bin/$$linter || failed="$$failed, $$linter"; \
	done; test -z "$$failed" || { echo "failed: $${failed#, }" >&2; exit 1; }

readme: $(INSTALLED) # the README's tables and julia/models, from the code
	$(VENV)/bin/python -m tests.readme

notebooks: $(INSTALLED) # executes docs/notebooks; needs an idle machine
	$(VENV)/bin/python -m tests.notebooks $(ARGS)

gallery: $(INSTALLED) # the figures of docs/gallery, from its saved studies
	$(VENV)/bin/python -m tests.gallery

docs: $(INSTALLED) # the site, in build/site
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict --site-dir build/site

schema: $(INSTALLED) # the JSON Schemas of logs and reports, from their types
	$(VENV)/bin/python -m polybench.schema.documents
	$(VENV)/bin/python -m polybench.log

release-check: # build/release/dist: builds wheel and sdist, checks their metadata, installs each and runs it; needs a package index
	rm -rf build/release
	$(PYTHON) -m venv build/release/tools
	build/release/tools/bin/python -m pip install --quiet build twine
	build/release/tools/bin/python -m build --outdir build/release/dist
	build/release/tools/bin/python -m twine check --strict build/release/dist/*
	build/release/tools/bin/python -m tests.release build/release/dist $(EXTRAS)

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --constraint constraints.txt --editable '.[all,dev]'
	touch $@

$(OLDEST)/.installed: pyproject.toml tests/minimum_versions.txt
	$(OLDEST_PYTHON) -m venv $(OLDEST)
	$(OLDEST)/bin/python -m pip install --quiet --constraint tests/minimum_versions.txt --editable '.[$(OLDEST_EXTRAS)]'
	touch $@

clean:
	rm -rf $(VENV) $(OLDEST)
