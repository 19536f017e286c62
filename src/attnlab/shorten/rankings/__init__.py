"""Rankings of steps by how much they matter, one file each."""

from attnlab.shorten.rankings.influence import INFLUENCE
from attnlab.shorten.rankings.loss import LOSS
from attnlab.shorten.rankings.nsi import NSI
from attnlab.shorten.rankings.output import OUTPUT
from attnlab.shorten.rankings.ranking import Ranking as Ranking
from attnlab.shorten.rankings.ranking import Scores as Scores
from attnlab.shorten.rankings.tns import TNS

RANKINGS: dict[str, Ranking] = {
    ranking.name: ranking for ranking in (OUTPUT, INFLUENCE, NSI, TNS, LOSS)
}
