"""What a job was made of, as a value: its ranks, its kinds of groups, and the layout they are groups of."""

from rankatlas.records.check import check_record as check_record
from rankatlas.records.infer import Inference as Inference
from rankatlas.records.infer import infer_layout as infer_layout
from rankatlas.records.kinds import Kind as Kind
from rankatlas.records.record import LayoutRecord as LayoutRecord
