"""Soft subspaces: look at a collection's spectra, choose a setting on it, search with it.

    python examples/soft_subspaces.py [MODEL]

MODEL is any PyLate model, by default one from the Hugging Face hub.
"""

import contextlib
import io
import sys
import tempfile

from pylate import models

from pylate_eigenli import EigenLIIndex, EigenLISVIndex, analyze, tune

model = models.ColBERT(sys.argv[1] if len(sys.argv) > 1 else "lightonai/GTE-ModernColBERT-v1")

with contextlib.redirect_stdout(io.StringIO()):
    import this  # the Zen of Python, in rot13
zen = "".join(this.d.get(letter, letter) for letter in this.s).splitlines()[2:]
documents = model.encode(zen, is_query=False)
queries = model.encode([" ".join(line.split()[:4]) for line in zen[::2]], is_query=True)

found = analyze(documents)
print(f"effective rank {found.effective_rank:.1f}; k = {found.k}, {found.preset}: {found.reason}")

# Without relevance judgements, settings are judged by how well they agree with MaxSim.
tuning = tune(range(len(zen)), documents, queries, ks=[4, 8, 16], show_progress=False)
print(f"tuned to {tuning.options}: {tuning.best.score:.3f}, paper {tuning.paper.score:.3f}")

folder = tempfile.mkdtemp()
tuned = EigenLIIndex(folder, "tuned", show_progress=False, **tuning.options)
# The preset standardises tokens by the statistics of the collection; here in one vector of 1 bit.
plus = EigenLISVIndex(folder, "plus", preset="plus", dtype="binary", show_progress=False)

query = model.encode(["errors should not be hidden"], is_query=True)
for index in (tuned, plus):
    index.add_documents(range(len(zen)), documents)
    if index.settings.standardise:
        index.fit_queries(queries)
    print([zen[hit["id"]] for hit in index(query, k=2)[0]])
# The background is subtracted from queries: another search may do without.
print([zen[hit["id"]] for hit in plus(query, k=2, background=0)[0]])
