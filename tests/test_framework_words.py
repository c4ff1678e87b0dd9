"""What frameworks say of their layouts and call their groups, and their callbacks, without the frameworks."""

import pickle
import sys
from types import ModuleType, SimpleNamespace

import pytest

from rankatlas import Mesh, live
from rankatlas.core import parse_layout
from rankatlas.errors import JobError
from rankatlas.live.fields import layout_fields
from rankatlas.records import Kind, infer_layout


def kinds_of(mesh, **names):
    """One kind for every name, over the axes it stands for."""
    return [Kind(f"mesh_{name}", [list(group) for group in mesh.groups(*axes)]) for name, axes in names.items()]


class TestFields:
    def test_a_topology_is_told_by_its_axes_and_not_by_its_table(self):
        topology = SimpleNamespace(axes=["pipe", "data"], dims=[2, 4], mapping={(0, 0): 0, (0, 1): 1})
        assert layout_fields(topology) == {"axes": ["pipe", "data"], "dims": [2, 4]}

    def test_what_decides_which_meshes_are_made(self):
        dims = SimpleNamespace(dp_shard=2, spmd_backend="full_dtensor", _world_mesh=object())
        assert layout_fields(dims) == {"dp_shard": 2, "spmd_backend": "full_dtensor"}


class TestNames:
    def test_a_folded_axis_yields_to_the_one_it_is(self):
        kinds = kinds_of(Mesh(pp=2, dp=2, tp=2), batch=["dp"], loss_mesh=["dp"], pp=["pp"], dp_shard=["dp"], tp=["tp"])
        assert infer_layout(kinds, 8).layout == Mesh(pp=2, dp_shard=2, tp=2)

    def test_a_folded_axis_counts_where_it_alone_has_a_name(self):
        kinds = kinds_of(Mesh(pp=2, dp=2, tp=2), pp=["pp"], batch=["dp"], tp=["tp"])
        assert infer_layout(kinds, 8).layout == Mesh(pp=2, batch=2, tp=2)

    def test_experts_replicated_as_the_rest_is(self):
        dense = kinds_of(Mesh(dp_replicate=2, dp=2, tp=2), dp_replicate=["dp_replicate"], dp_shard=["dp"], tp=["tp"])
        expert = kinds_of(Mesh(dp_replicate=2, efsdp=2, ep=2), efsdp=["efsdp"], ep=["ep"])
        notation = "dense: dp_replicate=2 dp_shard=2 tp=2; expert: dp_replicate=2 efsdp=2 ep=2; shared: dp_replicate"
        assert infer_layout([*dense, *expert], 8).layout == parse_layout(notation)

    def test_experts_that_go_across_replicas(self):
        dense = kinds_of(Mesh(dp_replicate=2, tp=4), dp_replicate=["dp_replicate"], tp=["tp"])
        expert = kinds_of(Mesh(edp=4, ep=2), edp=["edp"], ep=["ep"])
        assert infer_layout([*dense, *expert], 8).layout == parse_layout(
            "dense: dp_replicate=2 tp=4; expert: edp=4 ep=2"
        )


class Callback:
    """As Lightning's: hooks that do nothing."""

    def setup(self, trainer, pl_module, stage):
        raise AssertionError("ours comes first")

    def on_train_end(self, trainer, pl_module):
        return "theirs"


class TestCallback:
    @pytest.fixture
    def package(self, monkeypatch):
        package = ModuleType("pytorch_lightning")
        package.Callback = Callback
        monkeypatch.delitem(sys.modules, "lightning.pytorch", raising=False)
        monkeypatch.setitem(sys.modules, "pytorch_lightning", package)

    def test_a_callback_of_the_package_in_use(self, package):
        made = live.callback("dp=2")
        assert isinstance(made, Callback)
        assert made.on_train_end(None, None) == "theirs"
        assert (made.watch.agreement, made.watch.record) == (None, None)

    def test_it_can_be_sent_to_spawned_processes(self, package):
        made = live.callback("dp=2", expect=Mesh(dp=2), axes=["dp"], extra={"seed": 1}, timeout=5)
        again = pickle.loads(pickle.dumps(made))
        assert type(again) is type(made)
        assert vars(again.watch) == vars(made.watch)

    def test_one_process_is_left_alone(self, package):
        made = live.callback("dp=2")
        made.setup(SimpleNamespace(world_size=1), None, "fit")
        made.on_fit_start(SimpleNamespace(world_size=1), None)
        assert (made.watch.agreement, made.watch.record) == (None, None)

    def test_several_processes_ask_the_job(self, package):
        pytest.importorskip("torch")
        made = live.callback("dp=2")
        with pytest.raises(JobError, match="no distributed job is initialised"):
            made.setup(SimpleNamespace(world_size=2), None, "fit")
        with pytest.raises(JobError, match="no distributed job is initialised"):
            made.on_fit_start(SimpleNamespace(world_size=2), None)

    def test_without_a_layout_there_is_nothing_to_agree_on(self, package):
        live.callback().setup(SimpleNamespace(world_size=2), None, "fit")

    def test_a_trainer_nobody_knows(self):
        with pytest.raises(JobError, match="trainer is one of lightning"):
            live.callback("dp=2", trainer="keras")

    def test_no_trainer_imported(self, monkeypatch):
        for name in ("lightning.pytorch", "pytorch_lightning"):
            monkeypatch.delitem(sys.modules, name, raising=False)
        with pytest.raises(JobError, match="import a trainer first"):
            live.callback("dp=2")
