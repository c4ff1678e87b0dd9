"""What is public: the names, their signatures frozen in public_api.txt, and what an import costs in modules.

After a wanted change: `python tests/test_public_api.py` writes the file anew; read the difference before committing.
"""

import inspect
import json
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import rankatlas
from rankatlas import errors

FROZEN = Path(__file__, "../public_api.txt").resolve()
CONTRACT = ("Mesh", "Atlas", "Topology", "GroupInfo", "parse_mesh", "check_groups")
MADE_BY_USERS = ("Mesh", "Atlas", "Topology", "GroupInfo", "Coordinate")  # the others come out of these
HEAVY = ("numpy", "torch", "paddle", "jax", "rich", "click", "yaml", "mpi4py")


def signature(function):
    """Without the quotes that postponed annotations have in some releases of Python and not in others."""
    return str(inspect.signature(function)).replace("'", "")


def described():
    """One line per public name, and one per public member that is our own."""
    for name in rankatlas.__all__:
        item = getattr(rankatlas, name)
        if not inspect.isclass(item):
            yield f"{name}{signature(item)}"
            continue
        yield f"class {name}{signature(item) if name in MADE_BY_USERS else ''}"
        for member in sorted(vars(item)):
            value = inspect.getattr_static(item, member)
            if member.startswith("_"):
                continue
            if isinstance(value, property):
                yield f"    {name}.{member}"
            elif isinstance(value, (classmethod, staticmethod)) or inspect.isfunction(value):
                yield f"    {name}.{member}{signature(getattr(item, member))}"


def described_errors():
    for name, error in vars(errors).items():
        if inspect.isclass(error):
            bases = ", ".join(base.__name__ for base in error.__bases__)
            yield f"error {name}({bases}): {', '.join(sorted(inspect.get_annotations(error)))}".rstrip(": ")


def frozen():
    return FROZEN.read_text(encoding="utf-8").splitlines()


def test_the_public_api_is_the_frozen_one():
    assert list(described()) == [line for line in frozen() if not line.startswith("error ")]


def test_errors_keep_their_bases_and_fields():
    """Further errors may join; those that are frozen stay as they are."""
    assert set(described_errors()) >= {line for line in frozen() if line.startswith("error ")}


def test_every_public_name_resolves_once_and_is_the_same_each_time():
    assert len(set(rankatlas.__all__)) == len(rankatlas.__all__)
    assert sorted(rankatlas.__all__) == rankatlas.__all__
    for name in rankatlas.__all__:
        assert getattr(rankatlas, name) is getattr(rankatlas, name)
    assert set(CONTRACT) <= set(rankatlas.__all__) <= set(dir(rankatlas))


def test_a_name_that_is_not_public_is_an_attribute_error():
    for name in ("mesh_", "IntSequence", "progressions", "_Mesh", "__wrapped__"):
        with pytest.raises(AttributeError, match=name):
            getattr(rankatlas, name)
        assert not hasattr(rankatlas, name)


def test_star_import_gives_the_public_names():
    space = {}
    exec("from rankatlas import *", space)
    assert set(space) - {"__builtins__"} == set(rankatlas.__all__)


def test_classes_pickle_by_reference():
    for name in rankatlas.__all__:
        item = getattr(rankatlas, name)
        assert pickle.loads(pickle.dumps(item)) is item


def test_the_version_is_told_once():
    from importlib.metadata import PackageNotFoundError, version

    assert rankatlas.__version__.count(".") == 2
    try:
        installed = version("rankatlas")
    except PackageNotFoundError:
        pytest.skip("rankatlas runs from its source folder here")
    assert installed == rankatlas.__version__


def loaded_by(code):
    """The modules that `code` loads in a fresh interpreter, beyond those that are there before."""
    script = (
        f"import json, sys\nbefore = set(sys.modules)\n{code}\nprint(json.dumps(sorted(set(sys.modules) - before)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    return json.loads(done.stdout)


def test_an_import_loads_the_package_and_nothing_else():
    assert loaded_by("import rankatlas") == ["rankatlas"]


USES = {
    "every public name": "import rankatlas\nfor name in rankatlas.__all__: getattr(rankatlas, name)",
    "a mesh at work": "from rankatlas import Mesh\nlist(Mesh(dp=2, tp=2).groups('dp'))\nstr(Mesh(dp=2).coordinate(1))",
    "a topology at work": "from rankatlas import Topology\nrepr(Topology.from_args({'mp_degree': 2}, 0, 8))",
    "notation": "from rankatlas import parse_layout\nparse_layout('a: dp=2; b: ep=2').fingerprint()",
    "an error": "from rankatlas import Mesh\ntry: Mesh(dp=2).size('tp')\nexcept KeyError as error: str(error)",
}


@pytest.mark.parametrize("code", USES.values(), ids=USES)
def test_no_use_of_the_core_or_the_drop_in_loads_a_heavy_module(code):
    assert [name for name in loaded_by(code) if name.partition(".")[0] in (*HEAVY, "dataclasses", "typing")] == []


if __name__ == "__main__":
    FROZEN.write_text("\n".join([*described(), *described_errors()]) + "\n", encoding="utf-8")
