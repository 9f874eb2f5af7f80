"""Computes the policy update. The only folder that knows TRL, in `trainer.py`."""
