"""The paper's theory as measured quantities: pure functions with the paper's symbols."""
