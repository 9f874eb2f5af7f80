"""Memory-efficient kernels, each with a plain-torch reference."""

# Unlike its neighbours this package does not refuse its bare name: transformers imports whatever `kernels` it finds on
# the path to read its version, and an error here would keep it from loading in a checkout.
