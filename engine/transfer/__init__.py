"""From a lifted module and a recipe to proposals: reviewable edits of the CuIR."""
