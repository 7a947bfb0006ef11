"""The flat API: every public name can be imported, and none is also the name of a module, which an import would put in its place."""

import pkgutil
from types import ModuleType

import pytest

import floatlens as fl
from floatlens import folders, interventions, measures


@pytest.mark.parametrize("package", [fl, measures, interventions, folders], ids=lambda package: package.__name__)
def test_no_public_name_is_also_a_module(package: ModuleType) -> None:
    modules = {module.name for module in pkgutil.iter_modules(package.__path__)}
    assert not modules & set(package.__all__)


@pytest.mark.parametrize("name", fl.__all__)
def test_every_public_name_can_be_imported(name: str) -> None:
    assert getattr(fl, name) is not None
