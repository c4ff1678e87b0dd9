"""Inside a running job: agree before groups are made, record what was made, hold it against the layout."""

from rankatlas.live.agree import Agreement as Agreement
from rankatlas.live.agree import agree as agree
