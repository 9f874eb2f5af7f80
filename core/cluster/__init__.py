"""Several machines as one: a cluster's address in; objects that live on its nodes and answer messages out."""
