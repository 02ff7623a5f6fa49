"""Search over design spaces, in numpy: no program is built or even lowered before it is worth measuring."""
