"""What a step costs on a cluster that nobody has to own: published figures of hardware in, seconds and bytes out."""
