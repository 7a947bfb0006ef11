"""Skip, by name, the examples of docstrings that run programs in isolation, where programs cannot be isolated."""

import pytest

RUN_PROGRAMS = ("code_runs.score_program", "code_runs.require_isolation", "code_runs.run_program")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Ask once whether programs can be isolated, and only where such an example is to be run."""
    examples = [item for item in items if item.name.endswith(RUN_PROGRAMS)]
    if not examples:
        return
    from floatlens.errors import Refusal
    from floatlens.tasks.code_runs import require_isolation

    try:
        require_isolation()
    except Refusal as refusal:
        for item in examples:
            item.add_marker(pytest.mark.skip(reason=str(refusal)))
