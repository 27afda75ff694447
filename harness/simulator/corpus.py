"""Request traces as prefix trees: the form, how it is built, and where it is kept."""

from __future__ import annotations

from harness.simulator.corpus_build import build, repeated
from harness.simulator.corpus_cache import first_requests, load_corpus
from harness.simulator.corpus_form import Corpus

__all__ = ["Corpus", "build", "first_requests", "load_corpus", "repeated"]
