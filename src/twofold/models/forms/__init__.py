"""Forms in which archives hold weights: one file each, with `write(members, folder, model)`."""
