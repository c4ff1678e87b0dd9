"""Mistakes that are made in real jobs, one of which a run can make on purpose: a comparison must be able to fail."""

MISTAKES = {
    "masks": "every rank draws its dropout masks from a seed of its own",
    "norms": "the gradients of the norms are not summed along tp, where ranks see other positions",
    "labels": "labels are shifted inside the slice of a rank, so that one at every border is wrong",
}
