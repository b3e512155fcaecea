"""What compilers of other years write otherwise."""
