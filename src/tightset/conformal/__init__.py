"""What makes sets valid and says what they are worth; knows nothing of training."""
