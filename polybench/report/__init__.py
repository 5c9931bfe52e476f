"""From what was learned of each cell to the study's document, and where documents are kept."""
