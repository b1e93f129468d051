"""The version of rdmaemu: what --version, the pkg-config file and the man pages say."""

VERSION = "0.1.0"
