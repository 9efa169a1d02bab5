"""Handlers that come with Muster; yours is any `process(batch_df, batch)` named by dotted path."""
