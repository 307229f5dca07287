"""The cluster of a ``local:///dir`` URL: jobs as processes of this machine."""
