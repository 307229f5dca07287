"""Display: text, tables, a terminal, a notebook's cells, signs of life."""
