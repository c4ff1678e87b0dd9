"""A small GPT trained under any layout, on groups, seeds, masks, weights and data of rankatlas."""
