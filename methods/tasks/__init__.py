"""What each task is: a corpus joined to a network, and what methods may ask of it."""
