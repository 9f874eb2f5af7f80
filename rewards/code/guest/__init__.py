"""What the split judge runs inside its two sandboxes: tests and a solution in, a report out. It travels as source."""
