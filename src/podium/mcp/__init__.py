"""`podium mcp`: the tools that a language model gets, and the server that offers them."""
