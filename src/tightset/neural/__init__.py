"""Neural measures in PyTorch, trained on mini-batches (extra `torch`): a loss for your own loop, and an estimator."""
