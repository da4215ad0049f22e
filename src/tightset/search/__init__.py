"""What is trained and which of it is kept: settings, candidates, judging, choice, refinement."""
