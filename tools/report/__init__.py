"""One HTML page about training runs, from their workdirs, finished or still running."""
