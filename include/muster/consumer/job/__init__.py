"""The file that `spark-submit` runs. Its folder is the first on the job's path, so it holds no other module."""
