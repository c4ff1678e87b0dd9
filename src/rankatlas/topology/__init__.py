"""The drop-in for PaddleNLP's `Topology`, and the training arguments its trainers build one from."""

from rankatlas.topology.group_info import GroupInfo as GroupInfo
from rankatlas.topology.topology import Topology as Topology
