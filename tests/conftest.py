"""Long checks run only where they are asked for: `pytest --verify`, as `make verify` does."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--verify", action="store_true", help="also run the long checks")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--verify"):
        return
    long = [item for item in items if item.get_closest_marker("verify")]
    if long:
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if not item.get_closest_marker("verify")]
