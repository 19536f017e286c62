"""Rankings of steps by how much they matter, one file each."""

from attnlab.instruments.removal.rankings.influence import INFLUENCE
from attnlab.instruments.removal.rankings.loss import LOSS
from attnlab.instruments.removal.rankings.nsi import NSI
from attnlab.instruments.removal.rankings.output import OUTPUT
from attnlab.instruments.removal.rankings.ranking import Ranking as Ranking
from attnlab.instruments.removal.rankings.ranking import Scores as Scores
from attnlab.instruments.removal.rankings.tns import TNS

RANKINGS: dict[str, Ranking] = {
    ranking.name: ranking for ranking in (OUTPUT, INFLUENCE, NSI, TNS, LOSS)
}
