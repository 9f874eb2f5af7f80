"""The update: rollouts and outcomes in, a better policy out. The only folder that knows TRL, in `trainer.py`."""
