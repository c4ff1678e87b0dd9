"""What people and programs see: a layout told as plain data first, then written by one of several pens."""
