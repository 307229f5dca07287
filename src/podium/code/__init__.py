"""Code that runs in the trainer's image without an image being built for it.

A directory is packed and stored once under its digest, ``<storage>/code/<sha256>.tar.gz``. The pods
run ``python -m podium.code URI --digest SHA256 -- COMMAND…``: it fetches the archive, verifies and
unpacks it, goes there and becomes the command. The same happens on one machine.
"""
