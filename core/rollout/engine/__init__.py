"""Rollouts by vLLM, in this process: prompts in, completions of a proven copy of the policy out."""
