"""State by key that moves with its partition: the changelog is the truth, the local store is a cache of it."""
