"""Where data comes from, one module for each kind of source; each declares its Source."""
