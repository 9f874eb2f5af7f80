"""Diagnoses a machine: one line for each thing that a run needs."""
