"""Studies, statistics and reports."""

from __future__ import annotations

from tests.bad_inputs.shared import Case, study

import attnlab
from attnlab.lab.study import planned_runs as planned

CASES: list[Case] = [
    (
        "study-empty",
        lambda _: attnlab.lab.study.Study(),
        "Setting 'data' of study is missing. Setting 'backbone' of study is missi",
    ),
    (
        "study-seeds-0",
        lambda _: study(seeds=0),
        "Setting 'seeds' of study: expected at least 1 but got 0.",
    ),
    (
        "study-seeds-neg",
        lambda _: study(seeds=-2),
        "Setting 'seeds' of study: expected at least 1 but got -2.",
    ),
    (
        "study-seeds-twice",
        lambda _: study(seeds=[1, 1]),
        "Setting 'seeds' of study: expected each once but got [1, 1].",
    ),
    (
        "study-seeds-empty",
        lambda _: study(seeds=[]),
        "Setting 'seeds' of study: expected at least 1 entry but got [].",
    ),
    (
        "study-attention-empty",
        lambda _: study(attention=[]),
        "Setting 'attention' of study: expected at least 1 entry but got [].",
    ),
    (
        "study-attention-int",
        lambda _: study(attention=[3]),
        "Expected a table of settings of module but got 3.",
    ),
    (
        "study-where-empty",
        lambda _: planned(study(where=[])),
        "where=() selects no site. Expected None or 'all' for every site, a selec",
    ),
    (
        "study-where-entry",
        lambda _: planned(study(attention=["none", {"gate": "se", "where": []}])),
        "where=() selects no site. Expected None or 'all' for every site, a selec",
    ),
    (
        "study-twice",
        lambda _: planned(study(attention=["se", "se"])),
        "Two rows of the study are called 'se'; give each its own label.",
    ),
    (
        "study-backbone-empty",
        lambda _: study(backbone=[]),
        "Setting 'backbone' of study: expected at least 1 entry but got [].",
    ),
    (
        "study-data-empty",
        lambda _: study(data=[]),
        "Setting 'data' of study: expected at least 1 entry but got [].",
    ),
    (
        "study-key",
        lambda _: study(sedes=3),
        "Unknown setting 'sedes' of study. Did you mean 'seeds' or 'threads' or 'devices'? ",
    ),
    (
        "study-name",
        lambda _: study(name="../../etc"),
        "Setting 'name' of study: expected a text of the form ^[A-Za-z0-9][A-Za-z",
    ),
    (
        "study-paper",
        lambda _: (
            study(paper={"source": "x", "top1": {"nothing": {"plain": "90"}}}).paper
            and planned(study(paper={"source": "x", "top1": {"nothing": {"plain": "90"}}}))
        ),
        "[paper.top1] names the group 'nothing', which the study does not have. I",
    ),
    (
        "study-load",
        lambda _: attnlab.lab.study.load_study("demoo"),
        "Unknown study 'demoo'. Did you mean 'demo'",
    ),
    (
        "study-load-missing",
        lambda _: attnlab.lab.study.load_study("nowhere.toml"),
        "There is no file 'nowhere.toml'. Expected the TOML file of a study.",
    ),
    (
        "study-load-dir",
        lambda x: attnlab.lab.study.load_study(str(x.tmp)),
        "There is no file '{tmp}'. Expected the TOML file of a study.",
    ),
    (
        "study-load-latin",
        lambda x: attnlab.lab.study.load_study(str(x.latin)),
        "{tmp}/latin.toml is not UTF-8 text, which TOML is: byte 11 cannot be rea",
    ),
    (
        "study-load-toml",
        lambda x: attnlab.lab.study.load_study(str(x.text_toml)),
        "{tmp}/t.toml is not a TOML file: Invalid value (at line 1, column 9).",
    ),
    (
        "executor-slots-0",
        lambda _: attnlab.lab.study.LocalExecutor(0),
        "Expected slots to be at least 1 but got 0.",
    ),
    (
        "executor-slots-neg",
        lambda _: attnlab.lab.study.LocalExecutor(-1),
        "Expected slots to be at least 1 but got -1.",
    ),
    (
        "executor-slots-str",
        lambda _: attnlab.lab.study.LocalExecutor("2"),
        "Expected slots to be a whole number but got '2'.",
    ),
    (
        "executor-threads-0",
        lambda _: attnlab.lab.study.LocalExecutor(1, threads=0),
        "Expected threads to be at least 1 but got 0.",
    ),
    (
        "executor-threads-neg",
        lambda _: attnlab.lab.study.LocalExecutor(1, threads=-2),
        "Expected threads to be at least 1 but got -2.",
    ),
    (
        "statistics-empty",
        lambda _: attnlab.lab.statistics.summarize([]),
        "Expected at least one value to summarize but got none.",
    ),
    (
        "paired-none",
        lambda _: attnlab.lab.statistics.paired_difference({}, {}),
        "Expected runs with the same seeds but got [] for the module and [] for t",
    ),
    (
        "report-missing",
        lambda _: attnlab.report("/nowhere"),
        "There is no '/nowhere'. Expected the folder of the runs of a study (attn",
    ),
    (
        "report-empty",
        lambda x: attnlab.report(x.tmp),
        "There is no study in '{tmp}': it has no studies/NAME/study.json. Expecte",
    ),
    (
        "report-text",
        lambda x: attnlab.report(x.text),
        "'{tmp}/a.txt' is not JSON. Expected the folder of the runs of a study (a",
    ),
    (
        "report-study",
        lambda x: attnlab.report(x.tmp, study="x"),
        "There is no study in '{tmp}': it has no studies/NAME/study.json. Expecte",
    ),
    (
        "measure-name",
        lambda x: attnlab.lab.measures.measure_run(x.tmp, only=["stifness"]),
        "Unknown measurement 'stifness'. Did you mean 'stiffness' or 'stripe'? Expect",
    ),
    (
        "measure-dir",
        lambda _: attnlab.lab.measures.measure_run("/nowhere"),
        "There is no '/nowhere/config.json', so '/nowhere' is not a run's folder.",
    ),
]
