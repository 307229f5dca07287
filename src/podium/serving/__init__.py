"""Models over HTTP: the Open Inference Protocol v2, and raw pictures, rows and sentences."""
