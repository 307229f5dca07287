"""The dataset artifact: where images come from, how they are checked, how they lie on disk."""
