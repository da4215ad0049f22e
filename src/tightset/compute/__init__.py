"""Where arrays live and rows lie: threads, blocks, partitions, types of rows, progress."""
