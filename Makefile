# Every target is project.py's; SEED, ORDERS, JSON and the like pass through the environment.
PYTHON ?= python3

.PHONY: help run exchange test check bench torture proof docs lines setup clean
help run exchange test check bench torture proof docs lines setup clean:
	@$(PYTHON) project.py $@
