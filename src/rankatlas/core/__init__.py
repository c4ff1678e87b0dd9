"""The algebra: integers, tuples and strings only; no I/O, no environment, no framework.

ranks → coordinate → group → mesh → atlas → description, notation, claims: each imports only those before it.
"""

from rankatlas.core.atlas import Atlas as Atlas
from rankatlas.core.claims import check_groups as check_groups
from rankatlas.core.coordinate import Coordinate as Coordinate
from rankatlas.core.group import Group as Group
from rankatlas.core.group import Groups as Groups
from rankatlas.core.mesh import Mesh as Mesh
from rankatlas.core.notation import parse_atlas as parse_atlas
from rankatlas.core.notation import parse_layout as parse_layout
from rankatlas.core.notation import parse_mesh as parse_mesh
from rankatlas.core.ranks import IntSequence as IntSequence
from rankatlas.core.ranks import Ranks as Ranks
