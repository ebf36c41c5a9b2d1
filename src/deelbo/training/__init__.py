"""The training loop, its settings, and the search for a learning rate."""
