"""Frameworks, each imported in one file here and nowhere else."""
