"""Inside a running job: agree before groups are made, record what was made, hold it against the layout."""

from rankatlas.live.agree import Agreement as Agreement
from rankatlas.live.agree import agree as agree
from rankatlas.live.callbacks import callback as callback
from rankatlas.live.launch import Launch as Launch
from rankatlas.live.record import record as record
from rankatlas.live.record import verify as verify
from rankatlas.records.record import LayoutRecord as LayoutRecord
