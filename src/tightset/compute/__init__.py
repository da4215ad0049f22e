"""Arrays and rows: threads, blocks, partitions, types of rows, progress."""
