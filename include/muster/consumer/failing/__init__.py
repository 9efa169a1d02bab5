"""What becomes of records, batches and partitions that fail: tried again, parked for a person, left out.

`parked` has the partitions that wait for an answer, `unreadable` those that cannot be read, `failing` says what is
tried next and judges what was tried, `answers` takes what people, or standing answers, decide. The rules are pure:
`muster.core.poison`, `turns`, `parking`, `apart` and `unread`.
"""
