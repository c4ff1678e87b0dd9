"""Which groups to create, in which order, by how many calls: plain values, before any communicator is made."""

from rankatlas.creation.calls import check_calls as check_calls
from rankatlas.creation.families import Family as Family
from rankatlas.creation.families import PlannedGroup as PlannedGroup
from rankatlas.creation.issue_order import check_issue_order as check_issue_order
from rankatlas.creation.partial import PartialSet as PartialSet
from rankatlas.creation.partial import first_and_last as first_and_last
from rankatlas.creation.partial import neighbours as neighbours
from rankatlas.creation.plan import CreationPlan as CreationPlan
