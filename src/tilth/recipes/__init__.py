"""Tables and figures of the papers, one module each."""
