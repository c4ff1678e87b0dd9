"""Every random seed of a job: the reference scheme exactly, the scheme we recommend, and what checks any scheme."""
