"""The environments `shell:FOLDER`: tasks in files, done with a shell in a session and judged by a grader."""
