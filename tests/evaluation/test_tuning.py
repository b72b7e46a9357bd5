"""What tune chooses where it is known what is best."""

import numpy as np
import pytest
from helpers.definition import unit_rows

from pylate_eigenli import EigenLIIndex, tune
from pylate_eigenli.evaluation.tuning import Trial, _choose
from pylate_eigenli.spectral.settings import PRESETS, SpectralSettings

D, N = 16, 60


@pytest.fixture(scope="module")
def collection():
    rng = np.random.default_rng(0)
    common = np.repeat(unit_rows(rng, 2, D), 4, axis=0)  # in most documents, and in every query
    documents = [
        np.concatenate([unit_rows(rng, 6, D), common[: rng.integers(0, 9)]]) for _ in range(N)
    ]
    queries = [
        np.concatenate([document[:2] + 0.7 * unit_rows(rng, 2, D), common[::2]])
        for document in documents[:30]
    ]
    return documents, queries, [{i: 1} for i in range(30)]


def test_what_is_common_to_all_is_weighed_down(collection):
    documents, queries, qrels = collection
    tuning = tune(range(N), documents, queries, qrels, ks=[4], idfs=[0.0, 0.4], show_progress=False)
    assert tuning.options["idf"] > 0 or tuning.options["standardise"]
    assert tuning.best.score > tuning.paper.score
    assert 0 < tuning.cross_validated <= tuning.trials[0].score
    assert tuning.measure == "nDCG@10"


def test_a_larger_index_has_to_be_worth_it(collection):
    documents, queries, qrels = collection
    tuning = tune(range(N), documents, queries, qrels, ks=[4, 8, 16], show_progress=False)
    best = max(trial.score for trial in tuning.trials)
    smaller = [t for t in tuning.trials if t.settings.k < tuning.best.settings.k]
    assert tuning.best.score >= 0.99 * best
    assert all(trial.score < best for trial in smaller)


def test_what_is_recommended_is_within_a_hundredth_of_the_best_tried(collection):
    documents, queries, qrels = collection
    tuning = tune(range(N), documents, queries, qrels, show_progress=False)
    assert tuning.best.score >= 0.99 * tuning.trials[0].score
    assert {t.settings.standardise for t in tuning.trials} == {True, False}


@pytest.mark.parametrize(("gain", "chosen"), [(0.02, PRESETS["plus"]), (0.3, PRESETS["paper"])])
def test_a_setting_that_is_better_by_chance_does_not_replace_the_preset(gain, chosen):
    usual = np.linspace(0.2, 0.8, 40)
    better = usual + gain + np.resize([0.2, -0.2], 40)
    trials = [
        Trial(SpectralSettings(k=k, **PRESETS[name]), float(values.mean()), 1.0, values)
        for name, values in (("plus", usual), ("paper", better))
        for k in (16, 32)
    ]
    assert _choose(trials, np.arange(40)).settings == SpectralSettings(k=16, **chosen)


def test_without_judgements_maxsim_is_the_judge(collection, tmp_path):
    documents, queries, _ = collection
    tuning = tune(range(N), documents, queries, ks=[8], idfs=[0.0], show_progress=False)
    assert "MaxSim" in tuning.measure
    assert 0 < tuning.best.score <= 1
    index = EigenLIIndex(str(tmp_path), **tuning.options, show_progress=False)
    assert index.add_documents(range(N), documents).settings.k == 8


def test_by_default_no_more_directions_are_tried_than_there_are(collection):
    documents, queries, qrels = collection
    tuning = tune(range(N), documents, queries, qrels, filters=["soft"], show_progress=False)
    assert {trial.settings.k for trial in tuning.trials} == {16}
    assert tuning.paper.settings.filter == "hard"
    with pytest.raises(ValueError, match="only d=16"):
        tune(range(N), documents, queries, qrels, ks=[8, 32], show_progress=False)
    with pytest.raises(ValueError, match="nothing to try"):
        tune(range(N), documents, queries, qrels, ks=[], show_progress=False)


def test_numbers_that_do_not_fit_are_refused(collection):
    documents, queries, qrels = collection
    with pytest.raises(ValueError, match="59 documents_ids for 60"):
        tune(range(59), documents, queries, qrels)
    with pytest.raises(ValueError, match="29 qrels for 30"):
        tune(range(N), documents, queries, qrels[1:])
