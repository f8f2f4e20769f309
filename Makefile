# Start with `make rehearse` and `make test`. You can also run each recipe line manually.
PYTHON ?= python3
BIN := .venv/bin
STACK ?= aws-p4d
# Two test files in parallel; the tests of one file share their fixtures. Rehearsals, which take minutes, start first (testpaths).
TWO := -n 2 --dist loadfile --no-loadscope-reorder
# A rehearsal waits for a third of its time, so more files than CPUs run in parallel.
MANY := -n 6 --dist loadfile --no-loadscope-reorder
# The tests start thousands of Python processes, and each would compile the package again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: rehearse test test-long lint bench docs sbom dist lock clean engine dev

rehearse: ## deploy a stack on the real Pulumi engine, with a stand-in cloud and stand-in nodes
	@$(PYTHON) tools/environment.py --for $(STACK)
	@$(BIN)/python -m gpuinfra.engine
	@$(BIN)/gpuinfra rehearse up $(STACK)

test: dev engine lint ## all checks for a change
	$(BIN)/python -m pytest -m "not long" $(TWO)

test-long: dev engine ## tests that take many minutes: all kills, all random specs
	$(BIN)/python -m pytest -m long $(MANY)

lint: dev ## style, types, shell and Go
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright --level error
	$(BIN)/python tools/lint_shell.py
	$(BIN)/python tools/lint_go.py

bench: dev engine ## benchmarks; they report figures and never fail
	@$(PYTHON) tools/environment.py bench
	for file in bench/*.py; do $(BIN)/python "$$file" || exit 1; done

docs: dev ## the documentation site in site/html; a broken link fails the build
	@$(PYTHON) tools/environment.py docs
	rm -rf site
	$(BIN)/python tools/docs_site/stage.py site/source
	.venv-docs/bin/python -m sphinx -q -n -W --keep-going -c tools/docs_site site/source site/html
	@echo "open site/html/index.html"

dev:
	@$(PYTHON) tools/environment.py dev

engine: dev # built from source, because the tests test this project's language host
	@$(BIN)/python -m gpuinfra.engine --build

DIST ?= dist
dist: dev sbom ## the wheels and source distributions of gpuinfra and of the rehearsal, and the bills of materials; builds of the same commit are identical
	for package in . rehearsal; do (cd $$package && SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) \
		$(abspath $(BIN))/python -m hatchling build -d $(abspath $(DIST))) || exit 1; done

sbom: ## one CycloneDX bill of materials per cloud: the locked Python packages of that cloud
	@$(PYTHON) tools/environment.py sbom
	mkdir -p $(DIST)
	for cloud in aws azure gcp; do PYTHONWARNINGS=ignore::UserWarning .venv-sbom/bin/cyclonedx-py requirements requirements/$$cloud.txt \
		--pyproject pyproject.toml --output-reproducible --output-file $(DIST)/gpuinfra-$$cloud.cdx.json || exit 1; done

UV_LOCK = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --custom-compile-command "make lock"
lock: dev ## update requirements/ to the newest versions that pyproject.toml allows
	$(UV_LOCK) --upgrade pyproject.toml --extra aws --extra azure --extra gcp --extra forecast \
		--group dev --group build --output-file requirements/dev.txt
	for cloud in aws azure gcp; do $(UV_LOCK) --upgrade pyproject.toml --extra $$cloud --group build \
		--constraint requirements/dev.txt --output-file requirements/$$cloud.txt || exit 1; done
	for tools in bench docs pages sbom; do $(UV_LOCK) --upgrade --group $$tools \
		--constraint requirements/dev.txt --output-file requirements/$$tools.txt || exit 1; done
	$(UV_LOCK) --upgrade requirements/uv.in --output-file requirements/uv.txt

clean: ## remove all generated files, except engines in the user's cache
	rm -rf .venv .venv-bench .venv-docs .venv-pages .venv-sbom .rehearsal .pytest_cache .ruff_cache .hypothesis dist site
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
