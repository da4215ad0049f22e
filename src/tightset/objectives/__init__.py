"""What training minimises: smooth set size at a level of coverage, in the space of scores."""
