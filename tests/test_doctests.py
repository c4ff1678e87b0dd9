"""Every example in every docstring of the package is run, and the core has one wherever it promises something."""

import ast
import doctest
import inspect
import pkgutil
from importlib import import_module

import pytest

import rankatlas

MODULES = [
    "rankatlas",
    *(found.name for found in pkgutil.walk_packages(rankatlas.__path__, "rankatlas.") if "__main__" not in found.name),
]


def defined_in(module):
    """The classes and functions at the top of the module's own source, whatever their __module__ says."""
    tree = ast.parse(inspect.getsource(module))
    return {node.name for node in tree.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}


class Finder(doctest.DocTestFinder):
    """Finds the classes whose __module__ is the public home `rankatlas` where they are written."""

    def _from_module(self, module, object):
        if inspect.isclass(object):
            return object.__name__ in defined_in(module)
        return super()._from_module(module, object)


def imported(name):
    """The module; one that needs a framework which is not installed here is skipped."""
    try:
        return import_module(name)
    except ModuleNotFoundError as missing:
        if missing.name.partition(".")[0] == "rankatlas":
            raise
        pytest.skip(f"{missing.name} is not installed")


def examples_of(module):
    return [test for test in Finder(exclude_empty=True).find(module, module.__name__) if test.examples]


@pytest.mark.filterwarnings("ignore:No ccache found")  # paddle, on import
@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of(name):
    for test in examples_of(imported(name)):
        told = []
        failed, _ = doctest.DocTestRunner(verbose=False).run(test, out=told.append)
        assert not failed, "".join(told)


def test_examples_are_really_found():
    """Of functions, methods and classes, also of those that say they live elsewhere."""
    quick = [name for name in MODULES if "adapters" not in name]
    names = {test.name for name in quick for test in examples_of(import_module(name))}
    home = "rankatlas.core.mesh.Mesh"
    assert {"rankatlas", home, f"{home}.groups", f"{home}.from_axes", "rankatlas.core.claims.check_groups"} <= names
    assert any(name.endswith(".GroupInfo") for name in names)
    assert len(names) >= 40


def promises():
    """Public functions, classes and methods of the core whose docstring names a cost or an error."""
    for name in MODULES:
        if name.startswith("rankatlas.core."):
            module = import_module(name)
            for public in sorted(defined_in(module)):
                item = getattr(module, public, None)
                text = inspect.getdoc(item) or ""
                if item is not None and not public.startswith("_") and ("Cost:" in text or "Raises" in text):
                    yield pytest.param(text, id=f"{name}.{public}")


@pytest.mark.parametrize("text", list(promises()))
def test_what_names_a_cost_or_an_error_shows_an_example(text):
    assert ">>>" in text


def test_every_public_function_and_class_of_the_core_says_what_it_is():
    for name in MODULES:
        if name.startswith("rankatlas.core"):
            module = import_module(name)
            assert inspect.getdoc(module)
            for public in defined_in(module):
                assert public.startswith("_") or inspect.getdoc(getattr(module, public)), f"{name}.{public}"
