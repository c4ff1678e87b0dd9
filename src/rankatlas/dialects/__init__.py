"""Configuration text in, a `Job` out: one reader per way of writing a layout down."""

from rankatlas.dialects.reading import read_config as read_config
