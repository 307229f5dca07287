"""Where data comes from, one module for each kind of source; each has ``read(location, options,
scratch) -> Raw``."""
