# Every target is project.py's; SEED, ORDERS, JSON and the like pass through the environment.
PYTHON ?= python3

.PHONY: help run test check bench torture proof docs setup clean
help run test check bench torture proof docs setup clean:
	@$(PYTHON) project.py $@
