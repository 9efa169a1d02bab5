"""Handlers that come with Muster; yours is any `process(batch_df, batch_id)` named by dotted path."""
