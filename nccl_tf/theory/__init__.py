"""The quantities of the paper's theory, as pure functions in the paper's symbols."""
