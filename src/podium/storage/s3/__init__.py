"""S3: any server that speaks it, through minio's client."""
