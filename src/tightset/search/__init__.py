"""The search for a model: settings, candidates, judging, choice, refinement."""
