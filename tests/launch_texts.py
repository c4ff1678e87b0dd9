"""Facts of a launch written the way its framework prints or takes them: the styles of tests/cases/launches.json."""

from __future__ import annotations

import json
import pprint
import shlex


def megatron_log(facts):
    lines = [
        "using world size: 1, data-parallel size: 1",
        "------------------------ arguments ------------------------",
    ]
    lines += [f"  {name} {'.' * (48 - len(name))} {facts[name]}" for name in sorted(facts)]
    lines += ["-------------------- end of arguments ---------------------", "> building tokenizer ..."]
    return "\n".join(f"\x1b[36m[default0]:\x1b[0m{line}" for line in lines)


def options(facts):
    found = []
    for name, value in facts.items():
        found.append(f"--{name.replace('_', '-')}" + ("" if value is True else f" ${name.upper()}"))
    return found


def script(facts):
    lines = ["#!/bin/bash", "set -e", "# sizes"]
    lines += [f"{name.upper()}={value}" for name, value in facts.items() if value is not True]
    launcher = {name: facts[name] for name in ("nproc_per_node", "nnodes")}
    rest = {name: value for name, value in facts.items() if name not in launcher}
    lines += ["DISTRIBUTED_ARGS=(", *options(launcher), ")", "ARGS=(", *options(rest), "--save $1", ")"]
    lines += [
        "torchrun ${DISTRIBUTED_ARGS[@]} pretrain_gpt.py \\",
        "    ${ARGS[@]} \\",
        "    --data-path $(ls data) 2>&1 | tee log",
    ]
    return "\n".join(lines)


def slurm_script(facts):
    """As a job of Slurm starts a launcher on every node: in a quoted command that is put together from variables."""
    facts = dict(facts)
    nodes, gpus = facts.pop("nodes"), facts.pop("gpus")
    lines = ["#!/bin/bash", f"#SBATCH --nodes={nodes}", "#SBATCH --ntasks-per-node=1", f"#SBATCH --gres=gpu:{gpus}"]
    lines += ["set -x -e", f"GPUS_PER_NODE={gpus}", "NNODES=$SLURM_NNODES"]
    words = {name: facts.pop(name) for name in list(facts) if isinstance(facts[name], str)}
    lines += [f"{name.upper()}={value}" for name, value in facts.items() if value is not True]
    told = [*options(facts), *(f"--{name.replace('_', '-')} {shlex.quote(value)}" for name, value in words.items())]
    lines += ['ARGS=" \\', *(f"    {option} \\" for option in told), '    "']
    lines += [
        'export LAUNCHER="python -u -m torch.distributed.run \\',
        "    --nproc_per_node $GPUS_PER_NODE --nnodes $NNODES --rdzv_endpoint $MASTER_ADDR:6000 \\",
        '    "',
        'export CMD=" `pwd`/pretrain_gpt.py $ARGS --save $WORK/checkpoints"',
        "echo $CMD",
        'srun --wait=60 bash -c "$LAUNCHER --node_rank \\$SLURM_PROCID $CMD" 2>&1 | tee -a log.txt',
    ]
    return "\n".join(lines)


def paddle_script(facts):
    facts = dict(facts)
    devices = facts.pop("xpus", "0,1,2,3,4,5,6,7")
    lines = ['task_name="llama"', 'rm -rf output/$task_name/"$1"', "export PYTHONPATH=../../:$PYTHONPATH"]
    lines += [
        "FLAGS_x=1 python -u -m paddle.distributed.launch \\",
        f'    --xpus "{devices}" \\',
        '    --log_dir "log/$task_name" \\',
    ]
    lines += ["    run_pretrain.py \\", *(f"    --{name} {json.dumps(value)} \\" for name, value in facts.items())]
    return "\n".join([*lines, '    --output_dir "output/$task_name"'])


def paddle_log(facts):
    before = "[2026-01-02 03:04:05,678] [   DEBUG] - "
    lines = ["=" * 60, f"{'Training Configuration Arguments':^40}", f"{'paddle commit id':30}: 0f"]
    lines += [f"{name:30}: {facts[name]}" for name in sorted(facts)]
    return "\n".join(
        ["LAUNCH INFO", *(before + line for line in lines), before, "[2026-01-02] [    INFO] - loss: 10.2"]
    )


def yaml_text(facts, depth=0):
    lines = []
    for name, value in facts.items():
        if isinstance(value, dict):
            lines += [f"{'  ' * depth}{name}:", yaml_text(value, depth + 1)]
        else:
            lines.append(f"{'  ' * depth}{name}: {json.dumps(value)}")
    return "\n".join(lines)


def toml(facts):
    lines = ["# a job"]
    for section, inner in facts.items():
        lines += [f"[{section}]", *(f"{name} = {json.dumps(value)}" for name, value in inner.items())]
    return "\n".join(lines) + "\n"


def titan_log(facts):
    facts = dict(facts)
    world = facts.pop("built")
    before = "[rank0]:[titan] 2026-01-02 03:04:05,678 - root - INFO - "
    parallel = facts["parallelism"]
    sizes = {
        "pp": parallel.get("pipeline_parallel_degree", 1),
        "dp_replicate": parallel.get("data_parallel_replicate_degree", 1),
        "cp": parallel.get("context_parallel_degree", 1), "tp": parallel.get("tensor_parallel_degree", 1),
    }  # fmt: skip
    shard = world
    for size in sizes.values():
        shard //= size
    told = ", ".join(f"{name}={size}" for name, size in {**sizes, "dp_shard": shard}.items())
    printed = json.dumps(facts, indent=2).splitlines()
    lines = [f"{before}Running with configs: {printed[0]}", *(f"[rank0]:{line}" for line in printed[1:])]
    return "\n".join(
        [*lines, f"{before}Building device mesh with parallelism: {told}, ep=1", f"{before}step: 1 loss: 12.2"]
    )


def deepspeed_log(facts):
    facts = dict(facts)
    # The engine prints how many ranks split a batch, and a float where it has divided.
    split = facts.pop("world_size") / facts.get("sequence_parallel_size", 1)
    world = f"{split:g}" if "data_parallel_size" in facts or "sequence_parallel_size" not in facts else split
    before = "[2026-01-02 03:04:05,678] [INFO] [config.py:1003:print]   "
    lines = [f"{before}world_size ................... {world}", f"{before}zero_enabled ................. True"]
    printed = json.dumps(facts, indent=4, separators=(",", ":")).splitlines()
    return "\n".join(
        [
            *lines,
            f"[2026-01-02 03:04:05,678] [INFO] [config.py:989:print_user_config]   json = {printed[0]}",
            *printed[1:],
        ]
    )


def verl_log(facts):
    lines = pprint.pformat(facts, width=60).splitlines()
    return "\n".join(
        ["ray started", *(f"(TaskRunner pid=4242) {line}" for line in lines), "(TaskRunner pid=4242) step:1"]
    )


def verl_script(facts):
    flat = []

    def walk(inner, path):
        for name, value in inner.items():
            if isinstance(value, dict):
                walk(value, f"{path}{name}.")
            else:
                flat.append(f"{path}{name}={value}")

    walk(facts, "")
    return "set -x\npython3 -m verl.trainer.main_ppo \\\n    " + " \\\n    ".join([*map(shlex.quote, flat), "$@"])


def nemo_rl_log(facts):
    return (
        "Loaded configuration\nApplied CLI overrides\nFinal config:\n"
        + pprint.pformat(facts)
        + "\n📊 Using log directory: logs"
    )


STYLES = {
    "megatron log": (megatron_log, "slurm-1.out"),
    "script": (script, "train.sh"),
    "slurm script": (slurm_script, "train.slurm"),
    "paddle script": (paddle_script, "run.sh"),
    "paddle log": (paddle_log, "workerlog.0"),
    "yaml": (yaml_text, "config.yaml"),
    "json": (json.dumps, "config.json"),
    "toml": (toml, "train.toml"),
    "titan log": (titan_log, "run.log"),
    "deepspeed log": (deepspeed_log, "run.log"),
    "verl log": (verl_log, "driver.log"),
    "verl script": (verl_script, "run.sh"),
    "nemo-rl log": (nemo_rl_log, "driver.log"),
}
