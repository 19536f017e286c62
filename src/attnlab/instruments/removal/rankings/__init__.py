"""Rankings of steps by how much they matter, one file each."""

from attnlab._errors import unknown_name
from attnlab.instruments.removal.rankings.influence import INFLUENCE, LOSS, OUTPUT
from attnlab.instruments.removal.rankings.kl import KL
from attnlab.instruments.removal.rankings.ranking import Ranking as Ranking
from attnlab.instruments.removal.rankings.ranking import Scores as Scores
from attnlab.instruments.removal.rankings.tns import NSI, TNS

RANKINGS: dict[str, Ranking] = {
    ranking.name: ranking for ranking in (OUTPUT, INFLUENCE, NSI, TNS, LOSS, KL)
}


def ranking_named(name: str) -> Ranking:
    """The ranking, or an error with the nearest name."""
    if name not in RANKINGS:
        raise unknown_name("ranking", name, RANKINGS)
    return RANKINGS[name]
