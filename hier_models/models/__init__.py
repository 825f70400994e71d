"""Every file that may travel with a checkpoint, and no other: a file imports from its neighbours alone."""
