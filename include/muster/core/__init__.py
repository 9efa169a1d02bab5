"""The pure part: model, wire format, assignors, planner and state machine. No I/O, no clock."""
