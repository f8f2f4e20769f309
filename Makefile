# Everything a person needs: `make rehearse` and `make test`. Each line is a command that can be typed by hand.
PYTHON ?= python3
BIN := .venv/bin
STACK ?= aws-p4d
# Two files at a time; what is in one file shares what it has set up.
TWO := -n 2 --dist loadfile

.PHONY: rehearse test test-long lint bench lock clean engine dev

rehearse: ## bring the cluster of a stack up on Pulumi's engine, with stand-ins for cloud and nodes
	@$(PYTHON) tools/environment.py --for $(STACK)
	@$(BIN)/python -m gpuinfra.engine
	@$(BIN)/gpuinfra rehearse up $(STACK)

test: dev engine lint ## everything that is checked on each change
	$(BIN)/python -m pytest -m "not long" $(TWO)

test-long: dev engine ## what takes many minutes: every kill, every random spec
	$(BIN)/python -m pytest -m long $(TWO) $(ONLY)

lint: dev ## style, types, node steps, language host
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright --level error
	$(BIN)/python tools/lint_shell.py
	$(BIN)/python tools/lint_go.py

bench: dev engine ## ratios, not timed tests
	@$(PYTHON) tools/environment.py bench
	for file in bench/*.py; do $(BIN)/python "$$file" || exit 1; done

dev:
	@$(PYTHON) tools/environment.py dev

engine: dev
	@$(BIN)/python -m gpuinfra.engine

UV_LOCK = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --custom-compile-command "make lock"
lock: dev ## take the newest versions that pyproject.toml allows into requirements/
	$(UV_LOCK) --upgrade pyproject.toml --extra aws --extra azure --extra gcp \
		--group dev --group build --output-file requirements/dev.txt
	for cloud in aws azure gcp; do $(UV_LOCK) --upgrade pyproject.toml --extra $$cloud --group build \
		--constraint requirements/dev.txt --output-file requirements/$$cloud.txt || exit 1; done
	$(UV_LOCK) --upgrade --group bench \
		--constraint requirements/dev.txt --output-file requirements/bench.txt
	$(UV_LOCK) --upgrade requirements/uv.in --output-file requirements/uv.txt

clean: ## what was made here; engines in the user's cache stay
	rm -rf .venv .venv-bench .rehearsal .pytest_cache .ruff_cache .hypothesis dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
